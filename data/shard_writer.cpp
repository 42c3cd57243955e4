#include "data/shard_writer.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "data/hdf5_handle.h"
#include "data/run_deflate.h"

namespace tempo::data {
namespace {

constexpr int kDeflateLevel = 4;  // what the file says, as h5py's do; deflate_runs has no levels
constexpr std::int64_t kBlockIds =
    32768;  // token ids in a block: 128 KiB, small beside a shard and large beside a call

/// How a dataset is stored.
struct Layout {
  std::int64_t width = 1;
  std::size_t item_bytes = 1;  ///< 1 or 4
  int rank = 2;
};

using Layouts = std::array<Layout, kNumColumns>;

Layouts layouts_of(std::int64_t sequence_length, std::int64_t max_predictions) {
  Layouts layouts;
  layouts[kInputIds] = {sequence_length, 4};
  layouts[kInputMask] = {sequence_length, 1};
  layouts[kSegmentIds] = {sequence_length, 1};
  layouts[kMaskedLmPositions] = {max_predictions, 4};
  layouts[kMaskedLmIds] = {max_predictions, 4};
  layouts[kNextSentenceLabels] = {1, 1, 1};
  return layouts;
}

/// One byte of every value, the lowest being number 0.
void copy_byte(const std::int32_t* values, std::size_t count, int number, std::uint8_t* bytes) {
  for (std::size_t index = 0; index < count; ++index) {
    bytes[index] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(values[index]) >> (8 * number));
  }
}

/// Little-endian int32 -> HDF5's shuffle filter: all lowest bytes, then all second ones ... Neighbours become alike.
std::vector<std::uint8_t> shuffled_bytes(const std::vector<std::int32_t>& values, std::size_t size) {
  std::vector<std::uint8_t> bytes(size * 4);
  for (int number = 0; number < 4; ++number) {
    copy_byte(values.data(), values.size(), number, bytes.data() + static_cast<std::size_t>(number) * size);
  }
  return bytes;
}

/// Ones from `begins[row]` (from 0 where there is none) to `ends[row]` in each row.
std::vector<std::uint8_t> run_bytes(const std::vector<std::int32_t>* begins, const std::vector<std::int32_t>& ends,
                                    std::int64_t width, std::size_t size) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t row = 0; row < ends.size(); ++row) {
    const auto start = bytes.begin() + static_cast<std::ptrdiff_t>(row) * width;
    std::fill(start + (begins != nullptr ? (*begins)[row] : 0), start + ends[row], std::uint8_t{1});
  }
  return bytes;
}

hid_t stored_type(const Layout& layout) { return layout.item_bytes == 4 ? H5T_STD_I32LE : H5T_STD_I8LE; }

}  // namespace

std::int64_t rows_per_block(std::int64_t sequence_length) {
  return std::max<std::int64_t>(1, kBlockIds / sequence_length);
}

CompressedBlock compress_block(const ExampleRows& rows, std::int64_t block_rows) {
  const std::int64_t length = rows.sequence_length;
  const auto slots = static_cast<std::size_t>(block_rows * length);
  const auto labels = static_cast<std::size_t>(block_rows * rows.max_predictions);
  std::vector<std::uint8_t> next(rows.next_sentence_labels.begin(), rows.next_sentence_labels.end());
  next.resize(static_cast<std::size_t>(block_rows));
  CompressedBlock block;
  block.columns.resize(kNumColumns);
  // A part of a shuffled column is one byte of all its values.
  block.columns[kInputIds] = deflate_runs(shuffled_bytes(rows.input_ids, slots), slots);
  block.columns[kInputMask] = deflate_runs(run_bytes(nullptr, rows.lengths, length, slots), slots);
  block.columns[kSegmentIds] = deflate_runs(run_bytes(&rows.second_starts, rows.lengths, length, slots), slots);
  block.columns[kMaskedLmPositions] = deflate_runs(shuffled_bytes(rows.masked_lm_positions, labels), labels);
  block.columns[kMaskedLmIds] = deflate_runs(shuffled_bytes(rows.masked_lm_ids, labels), labels);
  block.columns[kNextSentenceLabels] = deflate_runs(next, next.size());
  return block;
}

struct ShardWriter::Impl {
  std::filesystem::path path;
  Layouts layouts;
  hsize_t block_rows = 0;
  hsize_t rows = 0;  ///< written
  Handle file;
  std::array<Handle, kNumColumns> datasets;

  [[noreturn]] void fail(const char* what) const { TORCH_CHECK(false, path.string(), ": ", what, ": ", hdf5_reason()); }
  void check(bool ok, const char* what) const {
    if (!ok) fail(what);
  }

  void make_dataset(std::size_t column) {
    const Layout& layout = layouts[column];
    const std::array<hsize_t, 2> none = {0, static_cast<hsize_t>(layout.width)};
    const std::array<hsize_t, 2> most = {H5S_UNLIMITED, static_cast<hsize_t>(layout.width)};
    const std::array<hsize_t, 2> chunk = {block_rows, static_cast<hsize_t>(layout.width)};
    const Handle space(H5Screate_simple(layout.rank, none.data(), most.data()), H5Sclose);
    const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(creation.get(), layout.rank, chunk.data());
    if (layout.item_bytes > 1) H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), kDeflateLevel);
    H5Pset_obj_track_times(creation.get(), false);
    datasets[column] = Handle(H5Dcreate2(file.get(), kColumnNames[column], stored_type(layout), space.get(),
                                         H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                              H5Dclose);
    check(datasets[column].valid(), "cannot be written");
  }

  void extend() {
    for (std::size_t column = 0; column < kNumColumns; ++column) {
      const std::array<hsize_t, 2> extent = {rows, static_cast<hsize_t>(layouts[column].width)};
      check(H5Dset_extent(datasets[column].get(), extent.data()) >= 0, "cannot be extended");
    }
  }

  void write_attribute(const std::string& name, const Handle& type, const void* value) {
    const Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
    const Handle attribute(H5Acreate2(file.get(), name.c_str(), type.get(), scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
    check(attribute.valid() && H5Awrite(attribute.get(), type.get(), value) >= 0, "an attribute cannot be written");
  }

  void write_attribute(const std::string& name, std::int64_t value) {
    write_attribute(name, Handle(H5Tcopy(H5T_STD_I64LE), H5Tclose), &value);
  }
  void write_attribute(const std::string& name, double value) {
    write_attribute(name, Handle(H5Tcopy(H5T_IEEE_F64LE), H5Tclose), &value);
  }
  void write_attribute(const std::string& name, const std::string& value) {
    const Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), H5T_VARIABLE);  // as h5py writes text, and reads as str
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    const char* text = value.c_str();
    write_attribute(name, type, &text);
  }
};

ShardWriter::ShardWriter(std::filesystem::path path, std::int64_t sequence_length, std::int64_t max_predictions)
    : impl_(std::make_unique<Impl>()) {
  // At exit HDF5 would try once more to write what a full disk has refused.
  H5dont_atexit();
  const QuietErrors quiet;
  impl_->path = std::move(path);
  impl_->layouts = layouts_of(sequence_length, max_predictions);
  impl_->block_rows = static_cast<hsize_t>(rows_per_block(sequence_length));
  impl_->file = Handle(H5Fcreate(impl_->path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  impl_->check(impl_->file.valid(), "cannot be made");
  for (std::size_t column = 0; column < kNumColumns; ++column) impl_->make_dataset(column);
}

ShardWriter::~ShardWriter() {
  const QuietErrors quiet;
  impl_.reset();
}

ShardWriter::ShardWriter(ShardWriter&&) noexcept = default;

void ShardWriter::write(const CompressedBlock& block, std::int64_t num_rows) {
  const QuietErrors quiet;
  TORCH_CHECK(num_rows > 0 && num_rows <= static_cast<std::int64_t>(impl_->block_rows), "a block of ", num_rows,
              " rows");
  TORCH_CHECK(impl_->rows % impl_->block_rows == 0, "a block was added after the last one");
  const std::array<hsize_t, 2> offset = {impl_->rows, 0};
  impl_->rows += static_cast<hsize_t>(num_rows);
  impl_->extend();
  for (std::size_t column = 0; column < kNumColumns; ++column) {
    const std::vector<std::uint8_t>& bytes = block.columns[column];
    impl_->check(H5Dwrite_chunk(impl_->datasets[column].get(), H5P_DEFAULT, /*filters=*/0, offset.data(), bytes.size(),
                                bytes.data()) >= 0,
                 "cannot be written");
  }
}

std::int64_t ShardWriter::num_rows() const { return static_cast<std::int64_t>(impl_->rows); }
const std::filesystem::path& ShardWriter::path() const { return impl_->path; }

void ShardWriter::close(const Attributes& attributes) {
  const QuietErrors quiet;
  for (const auto& [name, value] : attributes) {
    std::visit([&, name = name](const auto& held) { impl_->write_attribute(name, held); }, value);
  }
  for (Handle& dataset : impl_->datasets) impl_->check(dataset.close(), "cannot be closed");
  impl_->check(H5Fflush(impl_->file.get(), H5F_SCOPE_LOCAL) >= 0, "cannot be flushed");
  impl_->check(impl_->file.close(), "cannot be closed");
}

}  // namespace tempo::data
