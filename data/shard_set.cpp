#include "data/shard_set.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace tempo::data {
namespace {

constexpr std::size_t kNumberWidth = 4;  // shards sort by name in the order of their numbers

template <typename T>
void append_part(const std::vector<T>& from, std::int64_t row, std::int64_t width, std::vector<T>& to) {
  to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
}

void append_row(const ExampleRows& from, std::int64_t row, ExampleRows& to) {
  if (to.num_rows() == 0) {
    to.sequence_length = from.sequence_length;
    to.max_predictions = from.max_predictions;
    const auto block_rows = static_cast<std::size_t>(rows_per_block(from.sequence_length));
    to.input_ids.reserve(block_rows * static_cast<std::size_t>(from.sequence_length));
    to.masked_lm_positions.reserve(block_rows * static_cast<std::size_t>(from.max_predictions));
    to.masked_lm_ids.reserve(block_rows * static_cast<std::size_t>(from.max_predictions));
  }
  append_part(from.input_ids, row, from.sequence_length, to.input_ids);
  append_part(from.masked_lm_positions, row, from.max_predictions, to.masked_lm_positions);
  append_part(from.masked_lm_ids, row, from.max_predictions, to.masked_lm_ids);
  append_part(from.lengths, row, 1, to.lengths);
  append_part(from.second_starts, row, 1, to.second_starts);
  append_part(from.num_labels, row, 1, to.num_labels);
  append_part(from.next_sentence_labels, row, 1, to.next_sentence_labels);
}

void count_row(const ExampleRows& rows, std::int64_t row, ShardSet::Totals& totals) {
  ++totals.rows;
  totals.real_tokens += rows.lengths[row];
  totals.labels += rows.num_labels[row];
  totals.random_next += rows.next_sentence_labels[row];
}

}  // namespace

void PendingBlock::compress() {
  num_rows = rows.num_rows();
  compressed = compress_block(rows, rows_per_block(rows.sequence_length));
  rows = {};
}

ShardSet::ShardSet(std::filesystem::path folder, std::string prefix, std::int64_t num_shards,
                   std::int64_t sequence_length, std::int64_t max_predictions)
    : folder_(std::move(folder)),
      prefix_(std::move(prefix)),
      sequence_length_(sequence_length),
      max_predictions_(max_predictions),
      open_(static_cast<std::size_t>(num_shards)) {}

std::filesystem::path ShardSet::path_of(std::size_t shard) const {
  std::string number = std::to_string(shard);
  number.insert(0, number.size() < kNumberWidth ? kNumberWidth - number.size() : 0, '0');
  return folder_ / (prefix_ + number + ".hdf5");
}

void ShardSet::deal(const ExampleRows& rows, const std::vector<std::int64_t>& order, std::vector<PendingBlock>& full) {
  for (const std::int64_t row : order) {
    OpenShard& shard = open_[next_];
    append_row(rows, row, shard.block);
    count_row(rows, row, shard.totals);
    count_row(rows, row, totals_);
    if (shard.block.num_rows() == rows_per_block(sequence_length_)) {
      full.push_back({next_, std::exchange(shard.block, {}), {}, 0});
    }
    next_ = (next_ + 1) % open_.size();
  }
}

std::vector<PendingBlock> ShardSet::take_rest() {
  std::vector<PendingBlock> rest;
  for (std::size_t shard = 0; shard < open_.size(); ++shard) {
    if (open_[shard].block.num_rows() > 0) rest.push_back({shard, std::exchange(open_[shard].block, {}), {}, 0});
  }
  return rest;
}

void ShardSet::write(const PendingBlock& block) {
  // Shards get their first full block in the order of their numbers, as they are dealt to in turn.
  while (writers_.size() <= block.shard) {
    writers_.emplace_back(path_of(writers_.size()), sequence_length_, max_predictions_);
  }
  writers_[block.shard].write(block.compressed, block.num_rows);
}

void ShardSet::close(const Attributes& attributes) {
  for (std::size_t shard = 0; shard < writers_.size(); ++shard) {
    const Totals& totals = open_[shard].totals;
    Attributes all = attributes;
    all.insert(all.end(), {{"shard", static_cast<std::int64_t>(shard)},
                           {"num_shards", static_cast<std::int64_t>(writers_.size())},
                           {"rows", totals.rows},
                           {"real_tokens", totals.real_tokens},
                           {"labels", totals.labels}});
    writers_[shard].close(all);
  }
}

std::vector<std::pair<std::filesystem::path, std::int64_t>> ShardSet::files() const {
  std::vector<std::pair<std::filesystem::path, std::int64_t>> files;
  for (const ShardWriter& writer : writers_) files.emplace_back(writer.path(), writer.num_rows());
  return files;
}

}  // namespace tempo::data
