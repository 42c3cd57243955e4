#include "data/dataset.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tempo::data {
namespace {

// Shards held at once: the one being read and the one that a batch begins or ends in.
constexpr std::size_t kMaxCachedShards = 2;
constexpr std::int64_t kMaxPredictions = std::numeric_limits<std::uint16_t>::max();  // what a row's count is kept in
// Small domains need more rounds than the four of Luby and Rackoff (1988); NIST's FF3, made for them, takes eight.
constexpr std::uint32_t kFeistelRounds = 8;
// Keeps the order's random numbers apart from those of dropout, which has the same seed as its Philox key.
constexpr std::uint64_t kOrderKey = 0x6461746173657473;  // "datasets"
// Stands for the shard number in the permutation of the shards themselves; no shard has it (see the constructor).
constexpr std::uint32_t kOrderOfShards = std::numeric_limits<std::uint32_t>::max();

std::uint32_t bit_width(std::uint64_t value) {
  std::uint32_t bits = 0;
  for (; value != 0; value >>= 1) ++bits;
  return bits;
}

/// A permutation of [0, size), by number alone: an unbalanced Feistel network over the next power of two, walked along its
/// cycle until it is back inside (Black and Rogaway, 2002). The power of two is below 2 size, so a walk takes 2 steps at most
/// on average.
class Permutation {
 public:
  /// size < 2^32. `domain` tells apart the permutations of one epoch.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint32_t epoch, std::uint32_t domain)
      : size_(size), seed_(seed ^ kOrderKey), stream_(std::uint64_t{epoch} << 32 | domain) {
    const std::uint32_t bits = size > 1 ? bit_width(size - 1) : 0;
    low_bits_ = (bits + 1) / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }

  std::uint64_t operator()(std::uint64_t index) const {
    do {
      index = step(index);
    } while (index >= size_);
    return index;
  }

 private:
  std::uint64_t step(std::uint64_t index) const {
    std::uint64_t low = index & low_mask_;
    std::uint64_t high = index >> low_bits_;
    for (std::uint32_t round = 0; round < kFeistelRounds; round += 2) {
      high ^= random(round, low) & high_mask_;
      low ^= random(round + 1, high) & low_mask_;
    }
    return high << low_bits_ | low;
  }

  /// Philox4x32-10 with key = seed and counter = (half, round, domain, epoch).
  std::uint64_t random(std::uint32_t round, std::uint64_t half) const {
    return at::philox_engine(seed_, stream_, std::uint64_t{round} << 32 | half)();
  }

  std::uint64_t size_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint32_t low_bits_;
  std::uint64_t low_mask_;
  std::uint64_t high_mask_;
};

}  // namespace

struct Dataset::Impl {
  struct Place {
    std::size_t shard;
    std::int64_t row;
  };
  /// Where the shards stand in one epoch.
  struct EpochOrder {
    std::int64_t epoch = -1;
    std::vector<std::size_t> shards;   ///< shard numbers in the order they are visited
    std::vector<std::int64_t> starts;  ///< index in the epoch at which each of them begins
  };

  explicit Impl(DatasetOptions given) : options(std::move(given)) {
    TORCH_CHECK_VALUE(!options.shards.empty(), "no shard is given: the list of shards is empty");
    TORCH_CHECK_VALUE(options.shards.size() < kOrderOfShards, "too many shards: ", options.shards.size());
    // By bytes, as sorted() in Python; path's own operator< compares component by component.
    std::sort(options.shards.begin(), options.shards.end(),
              [](const auto& a, const auto& b) { return a.native() < b.native(); });
    const auto twice = std::adjacent_find(options.shards.begin(), options.shards.end());
    if (twice != options.shards.end()) TORCH_CHECK_VALUE(false, twice->string(), ": is listed twice");
    read_shapes();
    // Contents are checked now and not hours later; the last shards stay, and of every row its number of labels.
    for (std::size_t shard = 0; shard < shapes.size(); ++shard) {
      const std::vector<std::int32_t>& counts = load_shard(shard).num_labels;
      label_counts.emplace_back(counts.begin(), counts.end());
      if (options.on_checked && !options.on_checked(shard + 1, shapes.size())) break;
    }
  }

  /// Headers only, so that shards which do not fit together are found at once.
  void read_shapes() {
    sequence_length = options.sequence_length;
    max_predictions = options.max_predictions;
    for (const auto& path : options.shards) {
      const ShardShape shape = read_shard_shape(path);
      if (shapes.empty() && sequence_length == 0) sequence_length = shape.sequence_length;
      TORCH_CHECK_VALUE(
          shape.sequence_length == sequence_length, path.string(), ": has sequence length ", shape.sequence_length,
          ", but ", options.sequence_length != 0 ? "the configured one is " : options.shards.front().string() + " has ",
          sequence_length);
      TORCH_CHECK_VALUE(options.max_predictions == 0 || shape.max_predictions <= options.max_predictions, path.string(),
                        ": has ", shape.max_predictions, " predictions per sequence; at most the configured ",
                        options.max_predictions, " are allowed");
      TORCH_CHECK_VALUE(shape.max_predictions <= kMaxPredictions, path.string(), ": has ", shape.max_predictions,
                        " predictions per sequence; at most ", kMaxPredictions, " are supported");
      max_predictions = std::max(max_predictions, shape.max_predictions);
      check_tokenizer(path);
      shapes.push_back(shape);
      first_example.push_back(num_examples);
      num_examples += shape.num_rows;
    }
    TORCH_CHECK_VALUE(num_examples > 0, options.shards.front().string(), ": has no rows",
                      shapes.size() > 1 ? ", nor has any other shard" : "");
  }

  /// Shards that name their vocabulary must name the same one: ids of two would be mixed without a sign.
  void check_tokenizer(const std::filesystem::path& path) {
    for (const auto& [name, value] : read_attributes(path)) {
      const auto* hash = std::get_if<std::string>(&value);
      if (name != kTokenizerHash || hash == nullptr) continue;
      if (tokenizer_sha256.empty()) {
        tokenizer_sha256 = *hash;
        tokenizer_path = path;
      }
      TORCH_CHECK_VALUE(*hash == tokenizer_sha256, path.string(), ": was made with another vocabulary (SHA-256 ",
                        hash->substr(0, 12), "...) than ", tokenizer_path.string(), " (",
                        tokenizer_sha256.substr(0, 12), "...)");
    }
  }

  /// The shard, from the cache of the most recently used or from its file.
  const Shard& load_shard(std::size_t number) {
    const auto cached =
        std::find_if(cache.begin(), cache.end(), [&](const auto& entry) { return entry.first == number; });
    if (cached != cache.end()) {
      std::rotate(cache.begin(), cached, cached + 1);
      return *cache.front().second;
    }
    if (cache.size() == kMaxCachedShards) cache.pop_back();
    auto shard = std::make_unique<Shard>(read_shard(options.shards[number], options.limits));
    const ShardShape& then = shapes[number];
    TORCH_CHECK_VALUE(shard->shape.num_rows == then.num_rows && shard->shape.sequence_length == then.sequence_length &&
                          shard->shape.max_predictions == then.max_predictions,
                      options.shards[number].string(), ": its shape has changed since it was first opened");
    cache.emplace(cache.begin(), number, std::move(shard));
    return *cache.front().second;
  }

  const EpochOrder& order_of(std::int64_t epoch) const {
    if (order.epoch == epoch) return order;
    const Permutation permutation(shapes.size(), options.seed, static_cast<std::uint32_t>(epoch), kOrderOfShards);
    order.shards.clear();
    order.starts.clear();
    std::int64_t start = 0;
    for (std::size_t visit = 0; visit < shapes.size(); ++visit) {
      order.shards.push_back(options.shuffle ? permutation(visit) : visit);
      order.starts.push_back(start);
      start += shapes[order.shards.back()].num_rows;
    }
    order.epoch = epoch;
    return order;
  }

  Place place_of(std::int64_t epoch, std::int64_t index) const {
    TORCH_CHECK(epoch >= 0 && epoch <= std::numeric_limits<std::uint32_t>::max(), "epoch ", epoch, " is out of range");
    TORCH_CHECK(index >= 0 && index < num_examples, "index ", index, " is not in 0 to ", num_examples - 1);
    const EpochOrder& visits = order_of(epoch);
    // The last shard that begins at or before the index; shards without rows begin where the next one does.
    const auto next = std::upper_bound(visits.starts.begin(), visits.starts.end(), index);
    const auto visit = static_cast<std::size_t>(next - visits.starts.begin()) - 1;
    const std::size_t shard = visits.shards[visit];
    const std::int64_t row = index - visits.starts[visit];
    if (!options.shuffle) return {shard, row};
    const Permutation permutation(shapes[shard].num_rows, options.seed, static_cast<std::uint32_t>(epoch),
                                  static_cast<std::uint32_t>(shard));
    return {shard, static_cast<std::int64_t>(permutation(row))};
  }

  DatasetOptions options;
  std::vector<ShardShape> shapes;
  std::vector<std::int64_t> first_example;
  std::vector<std::vector<std::uint16_t>> label_counts;  ///< of each row of each shard
  std::int64_t num_examples = 0;
  std::int64_t sequence_length = 0;
  std::int64_t max_predictions = 0;
  std::string tokenizer_sha256;
  std::filesystem::path tokenizer_path;  ///< the shard that it comes from
  mutable EpochOrder order;
  std::vector<std::pair<std::size_t, std::unique_ptr<Shard>>> cache;  ///< most recently used first
};

Dataset::Dataset(DatasetOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Dataset::~Dataset() = default;

std::int64_t Dataset::num_examples() const { return impl_->num_examples; }
std::int64_t Dataset::sequence_length() const { return impl_->sequence_length; }
std::int64_t Dataset::max_predictions() const { return impl_->max_predictions; }
const std::string& Dataset::tokenizer_sha256() const { return impl_->tokenizer_sha256; }

GlobalBatch Dataset::global_batch_at(std::int64_t step, std::int64_t global_batch) const {
  TORCH_CHECK(step >= 1, "step ", step, " is below 1");
  TORCH_CHECK(global_batch >= 1, "a global batch of ", global_batch, " examples");
  const std::int64_t examples = num_examples();
  const std::int64_t steps_per_epoch = (examples - 1) / global_batch + 1;
  const std::int64_t first = (step - 1) % steps_per_epoch * global_batch;
  return {(step - 1) / steps_per_epoch, first, std::min(global_batch, examples - first)};
}

std::int64_t Dataset::example_at(std::int64_t epoch, std::int64_t index) const {
  const Impl::Place place = impl_->place_of(epoch, index);
  return impl_->first_example[place.shard] + place.row;
}

std::int64_t Dataset::count_labels(const GlobalBatch& batch) const {
  std::int64_t num_labels = 0;
  for (std::int64_t index = batch.first; index < batch.first + batch.count; ++index) {
    const Impl::Place place = impl_->place_of(batch.epoch, index);
    num_labels += impl_->label_counts[place.shard][place.row];
  }
  return num_labels;
}

HostBatch Dataset::read(const GlobalBatch& batch, std::int64_t offset, std::int64_t count) {
  TORCH_CHECK(offset >= 0 && count >= 0 && count <= batch.count - offset, "examples ", offset, " to ", offset + count,
              " do not lie in a global batch of ", batch.count);
  HostBatch rows(count, sequence_length(), max_predictions());
  for (std::int64_t index = batch.first + offset; index < batch.first + offset + count; ++index) {
    const Impl::Place place = impl_->place_of(batch.epoch, index);
    rows.add(impl_->load_shard(place.shard), place.row, impl_->first_example[place.shard] + place.row,
             max_predictions());
  }
  return rows;
}

}  // namespace tempo::data
