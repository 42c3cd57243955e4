#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "data/bert_normalizer.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

namespace tempo::data {
namespace {

// `tokenizers` and NVIDIA's scripts; Google's own code has 200.
constexpr std::size_t kMaxCharactersPerWord = 100;
constexpr std::string_view kContinuation = "##";

// 2^64 divided by the golden ratio: multiplying by it spreads keys over the upper bits (Knuth, 6.4).
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

/// The tokens as a trie over bytes. Edges lie in one hash table, at most half full, with linear probing.
class PieceTrie {
 public:
  static constexpr std::uint32_t kRoot = 0;
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  explicit PieceTrie(const std::vector<std::string>& tokens) : ids_(1, -1) {
    std::size_t num_bytes = 1;
    for (const std::string& token : tokens) num_bytes += token.size();
    TORCH_CHECK_VALUE(num_bytes < kNone, "a vocabulary of ", num_bytes, " bytes is too large; allowed are ", kNone - 1);
    int bits = 1;
    while (std::size_t{1} << bits < 2 * num_bytes) ++bits;
    shift_ = 64 - bits;
    edges_.resize(std::size_t{1} << bits);
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      std::uint32_t node = kRoot;
      for (const char byte : tokens[id]) node = add_child(node, static_cast<unsigned char>(byte));
      ids_[node] = static_cast<std::int32_t>(id);
    }
  }

  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    const Edge& edge = edges_[slot_of(node, byte)];
    return edge.child == kRoot ? kNone : edge.child;
  }

  std::uint32_t find(std::string_view prefix) const {
    std::uint32_t node = kRoot;
    for (const char byte : prefix) {
      if (node != kNone) node = child(node, static_cast<unsigned char>(byte));
    }
    return node;
  }

  /// The id of the token that ends at a node, or -1.
  std::int32_t id(std::uint32_t node) const { return ids_[node]; }

 private:
  struct Edge {
    std::uint64_t key = 0;        ///< parent * 256 + byte
    std::uint32_t child = kRoot;  ///< kRoot, which is nobody's child, where the slot is free
  };

  /// Where the edge lies, or the free slot where it would.
  std::size_t slot_of(std::uint32_t node, unsigned char byte) const {
    const std::uint64_t key = std::uint64_t{node} << 8 | byte;
    std::size_t slot = (key * kGolden) >> shift_;
    while (edges_[slot].child != kRoot && edges_[slot].key != key) slot = (slot + 1) & (edges_.size() - 1);
    return slot;
  }

  std::uint32_t add_child(std::uint32_t node, unsigned char byte) {
    Edge& edge = edges_[slot_of(node, byte)];
    if (edge.child == kRoot) {
      edge = {std::uint64_t{node} << 8 | byte, static_cast<std::uint32_t>(ids_.size())};
      ids_.push_back(-1);
    }
    return edge.child;
  }

  int shift_ = 0;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> ids_;  ///< of every node
};

/// Ids of the words seen last, by the bytes they had in the text. Each word has one place, which the next word that
/// hashes to it takes: a full cache costs no more than an empty one.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 32;
  static constexpr std::size_t kMaxIds = 7;
  using Key = std::array<std::uint64_t, kMaxBytes / 8>;

  /// One cache line. A key of zeros means zero ids, which is right: it is a word of NULs only, and those are dropped.
  struct alignas(64) Entry {
    Key key{};
    std::uint32_t num_ids = 0;
    std::array<std::int32_t, kMaxIds> ids{};

    /// Inline: == on arrays calls memcmp, a quarter of the whole time.
    bool has(const Key& other) const {
      return ((key[0] ^ other[0]) | (key[1] ^ other[1]) | (key[2] ^ other[2]) | (key[3] ^ other[3])) == 0;
    }
  };

  WordCache() : entries_(std::size_t{1} << kBits) {}

  /// The word's bytes, then zeros. NULs at a word's end make no difference to its ids. `word` has at most kMaxBytes; it
  /// lies in a text that can be read up to `text_end`.
  static Key key_of(std::string_view word, const char* text_end) {
    // Sliding over this leaves as many ones as the word has bytes.
    static constexpr std::array<std::uint64_t, 8> kMask = {~0ULL, ~0ULL, ~0ULL, ~0ULL, 0, 0, 0, 0};
    Key key{};
    if (text_end - word.data() < static_cast<std::ptrdiff_t>(kMaxBytes)) {
      std::memcpy(key.data(), word.data(), word.size());
      return key;
    }
    Key mask;
    std::memcpy(mask.data(), reinterpret_cast<const char*>(kMask.data()) + (kMaxBytes - word.size()), sizeof(Key));
    std::memcpy(key.data(), word.data(), sizeof(Key));
    for (std::size_t i = 0; i < key.size(); ++i) key[i] &= mask[i];
    return key;
  }

  Entry& place_of(const Key& key) {
    std::uint64_t hash = key[0] * kGolden;
    for (std::size_t i = 1; i < key.size(); ++i) hash = ((hash << 31 | hash >> 33) ^ key[i]) * kGolden;
    return entries_[hash >> (64 - kBits)];
  }

 private:
  // 2^15 entries are 2 MiB. A novel has some 15,000 different words.
  static constexpr int kBits = 15;
  std::vector<Entry> entries_;
};

/// Collects ids on the stack, so that a vector grows once per some thousand of them.
class IdWriter {
 public:
  explicit IdWriter(std::vector<std::int32_t>& ids) : ids_(ids) {}
  IdWriter(const IdWriter&) = delete;
  IdWriter& operator=(const IdWriter&) = delete;

  void add(std::int32_t id) {
    make_room();
    buffer_[count_++] = id;
  }
  /// Copies all of the entry's places, which costs less than a loop over its ids.
  void add(const WordCache::Entry& entry) {
    make_room();
    std::memcpy(buffer_.data() + count_, entry.ids.data(), sizeof(entry.ids));
    count_ += entry.num_ids;
  }
  void add(const std::vector<std::int32_t>& ids) {
    flush();
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  void flush() {
    ids_.insert(ids_.end(), buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(count_));
    count_ = 0;
  }

 private:
  void make_room() {
    if (count_ + WordCache::kMaxIds > buffer_.size()) flush();
  }

  std::vector<std::int32_t>& ids_;
  std::size_t count_ = 0;
  std::array<std::int32_t, 2048> buffer_;
};

/// What clones share.
struct SharedTables {
  SharedTables(std::shared_ptr<const Vocabulary> of, bool is_uncased)
      : lowercase(is_uncased),
        vocabulary(std::move(of)),
        normalizer(lowercase),
        trie(vocabulary->tokens()),
        continuation(trie.find(kContinuation)) {
    for (std::size_t byte = 0; byte < own_word_ids.size(); ++byte) {
      const char character = static_cast<char>(byte);
      const std::int32_t id = vocabulary->find({&character, 1});
      own_word_ids[byte] = id < 0 ? vocabulary->specials().unknown : id;
    }
  }

  bool lowercase;
  std::shared_ptr<const Vocabulary> vocabulary;
  BertNormalizer normalizer;
  PieceTrie trie;
  std::uint32_t continuation;                  ///< the node of "##", or kNone
  std::array<std::int32_t, 128> own_word_ids;  ///< of ASCII punctuation, which is its own normal form
};

class WordPiece final : public Tokenizer {
 public:
  explicit WordPiece(std::shared_ptr<const SharedTables> shared) : shared_(std::move(shared)) {}

  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<WordPiece>(shared_); }
  const Vocabulary& vocabulary() const override { return *shared_->vocabulary; }
  std::string name() const override { return shared_->lowercase ? "wordpiece uncased" : "wordpiece cased"; }
  bool continues_word(std::int32_t id) const override {
    const std::string& token = vocabulary().token(id);
    return token.size() > kContinuation.size() && token.compare(0, kContinuation.size(), kContinuation) == 0;
  }

  void encode(std::string_view text, std::vector<std::int32_t>& ids) override {
    const BertNormalizer& normalizer = shared_->normalizer;
    IdWriter writer(ids);
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
      const auto byte = static_cast<unsigned char>(*at);
      const CharacterRole role = normalizer.role_of_byte(byte);
      if (role == CharacterRole::kSpace) {
        ++at;
      } else if (role == CharacterRole::kOwnWord) {
        writer.add(shared_->own_word_ids[byte]);
        ++at;
      } else {
        at = encode_word(at, end, writer);
      }
    }
    writer.flush();
  }

 private:
  /// Encodes the word at `at`, or the character there that is none, and returns where it ends.
  const char* encode_word(const char* at, const char* end, IdWriter& writer) {
    const char* word_end = end_of_word(at, end);
    if (word_end == at) {
      const Utf8Character separator = read_utf8(at, end);
      word_end += separator.num_bytes;
      if (shared_->normalizer.role(separator.code_point) == CharacterRole::kSpace) return word_end;
    }
    const std::string_view raw(at, static_cast<std::size_t>(word_end - at));
    if (raw.size() > WordCache::kMaxBytes) {
      look_up(raw);
      writer.add(pieces_);
      return word_end;
    }
    const WordCache::Key key = WordCache::key_of(raw, end);
    WordCache::Entry& entry = cache_.place_of(key);
    if (entry.has(key)) {
      writer.add(entry);
      return word_end;
    }
    look_up(raw);
    writer.add(pieces_);
    if (pieces_.size() <= WordCache::kMaxIds) {
      entry.key = key;
      entry.num_ids = static_cast<std::uint32_t>(pieces_.size());
      std::copy(pieces_.begin(), pieces_.end(), entry.ids.begin());
    }
    return word_end;
  }

  /// The first character from `at` on that ends a word.
  const char* end_of_word(const char* at, const char* end) const {
    const BertNormalizer& normalizer = shared_->normalizer;
    while (at != end) {
      CharacterRole role = normalizer.role_of_byte(static_cast<unsigned char>(*at));
      std::size_t num_bytes = 1;
      if (role == CharacterRole::kMultibyte) {
        const Utf8Character character = read_utf8(at, end);
        role = normalizer.role(character.code_point);
        num_bytes = character.num_bytes;
      }
      if (role == CharacterRole::kSpace || role == CharacterRole::kOwnWord) break;
      at += num_bytes;
    }
    return at;
  }

  /// Sets pieces_ to the ids of a word: greedily the longest token that the rest begins with.
  void look_up(std::string_view raw) {
    pieces_.clear();
    const std::size_t num_characters = shared_->normalizer.normalize(raw, kMaxCharactersPerWord, word_);
    if (num_characters == 0) return;  // all of it was dropped
    if (num_characters > kMaxCharactersPerWord || !add_pieces()) {
      pieces_.assign(1, shared_->vocabulary->specials().unknown);
    }
  }

  /// Whether word_ can be built from pieces.
  bool add_pieces() {
    const PieceTrie& trie = shared_->trie;
    std::uint32_t first = PieceTrie::kRoot;
    for (std::size_t begin = 0; begin < word_.size(); first = shared_->continuation) {
      std::int32_t longest = -1;
      std::size_t longest_end = begin;
      std::uint32_t node = first;
      for (std::size_t end = begin; node != PieceTrie::kNone && end < word_.size();) {
        node = trie.child(node, static_cast<unsigned char>(word_[end++]));
        if (node == PieceTrie::kNone || trie.id(node) < 0) continue;
        longest = trie.id(node);
        longest_end = end;
      }
      if (longest < 0) return false;
      pieces_.push_back(longest);
      begin = longest_end;
    }
    return true;
  }

  std::shared_ptr<const SharedTables> shared_;
  WordCache cache_;
  std::string word_;                  ///< normal form, while it is looked up
  std::vector<std::int32_t> pieces_;  ///< ids of that word
};

}  // namespace

std::unique_ptr<Tokenizer> make_wordpiece(std::shared_ptr<const Vocabulary> vocabulary, bool lowercase) {
  TORCH_INTERNAL_ASSERT(vocabulary != nullptr);
  return std::make_unique<WordPiece>(std::make_shared<const SharedTables>(std::move(vocabulary), lowercase));
}

}  // namespace tempo::data
