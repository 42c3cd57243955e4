#include "data/corpus.h"

#include <c10/util/Exception.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "data/blank_line.h"
#include "data/random.h"

namespace tempo::data {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kReadBytes = 1 << 18;
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;  // longer lines are cut, so that memory stays bounded
// What is kept of a document to serve as another one later.
constexpr std::size_t kRepeatedBytes = std::size_t{1} << 18;
constexpr std::string_view kBom = "\xEF\xBB\xBF";

/// Lines of a plain or gzip-packed file, without their ends.
class LineReader {
 public:
  explicit LineReader(const fs::path& path) : path_(path), file_(::gzopen(path.c_str(), "rb")) {
    const int error = errno;
    if (file_ == nullptr) fail(std::strerror(error));
    ::gzbuffer(file_, kReadBytes);
  }
  ~LineReader() { ::gzclose_r(file_); }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The view holds until the next call.
  bool next(std::string_view& line) {
    for (;;) {
      const std::size_t end = buffer_.find('\n', searched_);
      const bool is_too_long = end == std::string::npos && buffer_.size() - begin_ >= kMaxLineBytes;
      if (end != std::string::npos || is_too_long || (is_at_end_ && begin_ < buffer_.size())) {
        line = take(end != std::string::npos ? end : is_too_long ? place_to_cut() : buffer_.size());
        return true;
      }
      if (is_at_end_) return false;
      searched_ = buffer_.size() - begin_;
      fill();
    }
  }

  /// Bytes of the file as it lies on disk.
  std::int64_t position() const { return ::gzoffset(file_); }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    C10_THROW_ERROR(ValueError, path_.string() + ": cannot be read: " + reason);
  }

  std::string_view take(std::size_t end) {
    std::string_view line(buffer_.data() + begin_, end - begin_);
    begin_ = searched_ = end < buffer_.size() && buffer_[end] == '\n' ? end + 1 : end;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (is_first_ && line.substr(0, kBom.size()) == kBom) line.remove_prefix(kBom.size());
    is_first_ = false;
    return line;
  }

  /// Where a line without end is cut: behind its last space, or else between two characters.
  std::size_t place_to_cut() const {
    const std::size_t space = buffer_.rfind(' ');
    if (space != std::string::npos && space > begin_) return space + 1;
    std::size_t end = buffer_.size();
    while (end > begin_ + 1 && (static_cast<unsigned char>(buffer_[end - 1]) & 0xC0) == 0x80) --end;
    return end > begin_ + 1 ? end - 1 : buffer_.size();
  }

  void fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t old_size = buffer_.size();
    buffer_.resize(old_size + kReadBytes);
    const int count = ::gzread(file_, buffer_.data() + old_size, kReadBytes);
    int code = Z_OK;
    const char* message = ::gzerror(file_, &code);
    if (count < 0) fail(code == Z_ERRNO ? std::strerror(errno) : message);
    buffer_.resize(old_size + static_cast<std::size_t>(count));
    if (count > 0) return;
    if (code == Z_BUF_ERROR) fail("the gzip file is cut off");
    is_at_end_ = true;
  }

  fs::path path_;
  gzFile file_;
  std::string buffer_;
  std::size_t begin_ = 0;     ///< of the line that comes next
  std::size_t searched_ = 0;  ///< there is no line end before
  bool is_first_ = true;
  bool is_at_end_ = false;
};

/// Gathers pieces into chunks, of training or of held-out documents.
class ChunkBuilder {
 public:
  ChunkBuilder(bool held_out, std::size_t chunk_bytes) : chunk_bytes_(chunk_bytes) { chunk_.held_out = held_out; }

  void add(TextPiece piece, std::deque<TextChunk>& ready) {
    bytes_ += piece.text.size();
    has_two_documents_ =
        has_two_documents_ || (!chunk_.pieces.empty() && chunk_.pieces.front().document != piece.document);
    chunk_.pieces.push_back(std::move(piece));
    if (bytes_ >= chunk_bytes_ && (has_two_documents_ || bytes_ >= chunk_bytes_ + kMaxPieceBytes)) close(ready);
  }

  void close(std::deque<TextChunk>& ready) {
    if (chunk_.pieces.empty()) return;
    TextChunk closed{0, chunk_.held_out, 0, std::exchange(chunk_.pieces, {})};
    const std::vector<TextPiece> before = std::exchange(recent_, recent_of(closed));
    if (!has_two_documents_) repeat_other(before, closed);
    ready.push_back(std::move(closed));
    bytes_ = 0;
    has_two_documents_ = false;
  }

 private:
  /// The last pieces of the chunk's last two documents, or of its last one and the one that was kept before.
  std::vector<TextPiece> recent_of(const TextChunk& closed) const {
    std::vector<TextPiece> recent;
    const auto keep = [&](const TextPiece& piece) {
      if (recent.size() == 2 || (!recent.empty() && recent.front().document == piece.document)) return;
      recent.push_back({piece.document, piece.piece, {}});
      recent.back().text.assign(piece.text, 0, kRepeatedBytes);
    };
    std::for_each(closed.pieces.rbegin(), closed.pieces.rend(), keep);
    std::for_each(recent_.begin(), recent_.end(), keep);
    return recent;
  }

  static void repeat_other(const std::vector<TextPiece>& earlier, TextChunk& closed) {
    const std::int64_t own = closed.pieces.front().document;
    for (const TextPiece& piece : earlier) {
      if (piece.document == own) continue;
      closed.pieces.insert(closed.pieces.begin(), piece);
      closed.num_repeated = 1;
      return;
    }
  }

  std::size_t chunk_bytes_;
  TextChunk chunk_;
  std::size_t bytes_ = 0;
  bool has_two_documents_ = false;
  std::vector<TextPiece> recent_;
};

std::int64_t total_size(const std::vector<fs::path>& inputs) {
  std::int64_t total = 0;
  for (const fs::path& input : inputs) {
    std::error_code error;
    const auto status = fs::status(input, error);
    TORCH_CHECK_VALUE(fs::exists(status), input.string(), ": ", error ? error.message() : "does not exist");
    TORCH_CHECK_VALUE(!fs::is_directory(status), input.string(), ": is a folder");
    const std::uintmax_t size = fs::file_size(input, error);
    if (!error) total += static_cast<std::int64_t>(size);
  }
  return total;
}

}  // namespace

struct CorpusReader::Impl {
  explicit Impl(CorpusOptions given)
      : options(std::move(given)),
        bytes_in_all(total_size(options.inputs)),
        builders{ChunkBuilder(false, options.chunk_bytes), ChunkBuilder(true, options.chunk_bytes)} {
    TORCH_CHECK(options.held_out_share == 0 || options.held_out_share >= kMinHeldOutShare, "a held-out share of ",
                options.held_out_share);
  }

  /// One in every 1 / share documents, each as likely as the others of its group.
  bool is_held_out(std::int64_t document) const {
    const double share = options.held_out_share;
    if (share <= 0) return false;
    const auto start_of = [share](std::int64_t group) {
      return static_cast<std::int64_t>(std::ceil(static_cast<double>(group) / share));
    };
    auto group = static_cast<std::int64_t>(static_cast<double>(document) * share);
    while (start_of(group) > document) --group;
    while (start_of(group + 1) <= document) ++group;
    Random random(options.seed, Random::Purpose::kHoldOut, static_cast<std::uint64_t>(group));
    return document == random.between(start_of(group), start_of(group + 1) - 1);
  }

  void add_line(std::string_view line) {
    const bool blank = is_blank(line);
    if (blank && (!is_in_document || options.documents == DocumentRule::kBlankLine)) {
      end_document();
      return;
    }
    if (!is_in_document) {
      is_in_document = true;
      current.document = counts.documents++;
      held_out = is_held_out(current.document);
      counts.held_out_documents += held_out ? 1 : 0;
    }
    current.text.append(line).push_back('\n');
    if (current.text.size() < kMaxPieceBytes) return;
    counts.cut_documents += std::exchange(is_cut, true) ? 0 : 1;
    end_piece();
  }

  void end_piece() {
    if (current.text.empty()) return;
    counts.text_bytes += static_cast<std::int64_t>(current.text.size());
    TextPiece piece{current.document, next_piece++, {}};
    piece.text.swap(current.text);
    builders[held_out ? 1 : 0].add(std::move(piece), ready);
  }

  void end_document() {
    end_piece();
    is_in_document = is_cut = false;
  }

  /// Reads on until a chunk is ready; false when there is nothing more to read.
  bool read_some() {
    if (!reader) {
      if (next_input == options.inputs.size()) return false;
      reader.emplace(options.inputs[next_input]);
      documents_before_file = counts.documents;
    }
    std::string_view line;
    while (ready.empty()) {
      if (reader->next(line)) {
        add_line(line);
        continue;
      }
      end_document();
      counts.empty_files += counts.documents == documents_before_file ? 1 : 0;
      std::error_code ignored;
      bytes_of_done_files += static_cast<std::int64_t>(fs::file_size(options.inputs[next_input++], ignored));
      reader.reset();
      return true;
    }
    return true;
  }

  CorpusOptions options;
  std::int64_t bytes_in_all;
  std::array<ChunkBuilder, 2> builders;  ///< training, held out
  CorpusCounts counts;
  std::size_t next_input = 0;
  std::optional<LineReader> reader;
  std::int64_t bytes_of_done_files = 0;
  std::int64_t documents_before_file = 0;
  bool is_in_document = false;
  bool is_cut = false;
  bool held_out = false;
  bool is_finished = false;
  TextPiece current;
  std::uint64_t next_piece = 0;
  std::uint64_t next_chunk = 0;
  std::deque<TextChunk> ready;
};

CorpusReader::CorpusReader(CorpusOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
CorpusReader::~CorpusReader() = default;

bool CorpusReader::next(TextChunk& chunk) {
  while (impl_->ready.empty() && !impl_->is_finished) {
    if (impl_->read_some()) continue;
    for (ChunkBuilder& builder : impl_->builders) builder.close(impl_->ready);
    impl_->is_finished = true;
  }
  if (impl_->ready.empty()) return false;
  chunk = std::move(impl_->ready.front());
  impl_->ready.pop_front();
  chunk.number = impl_->next_chunk++;
  return true;
}

const CorpusCounts& CorpusReader::counts() const { return impl_->counts; }

std::int64_t CorpusReader::bytes_read() const {
  return impl_->bytes_of_done_files + (impl_->reader ? impl_->reader->position() : 0);
}
std::int64_t CorpusReader::bytes_in_all() const { return impl_->bytes_in_all; }

}  // namespace tempo::data
