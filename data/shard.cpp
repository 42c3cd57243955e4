#include "data/shard.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "data/hdf5_handle.h"

namespace tempo::data {
namespace {

// Values per block that is read and narrowed at a time: 8 MB as int64, small beside a shard and large beside a call.
constexpr hsize_t kBlockValues = hsize_t{1} << 20;
// A chunk taller than this is read in several blocks all the same (128 MB), even though each then inflates it again.
constexpr hsize_t kMaxBlockValues = hsize_t{1} << 24;
// Rows, widths and ids are held as int32.
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

constexpr const char* kVariableLength =
    ": variable-length (MLPerf) shards are not supported; rows must be padded to one length";

template <typename... Parts>
[[noreturn]] void fail(const std::filesystem::path& path, const Parts&... parts) {
  C10_THROW_ERROR(ValueError, c10::str(path.string(), ": ", parts...));
}

/// One dataset of an open shard. A vector is a column of width 1.
struct Column {
  const char* name = nullptr;
  Handle dataset;
  int rank = 0;
  std::int64_t rows = 0;
  std::int64_t width = 1;
  hsize_t chunk_rows = 1;
  bool is_uint64 = false;  ///< the only type whose values int64 cannot hold
};

struct OpenShard {
  std::filesystem::path path;
  Handle file;
  std::array<Column, kNumColumns> columns;

  ShardShape shape() const {
    return {columns[kInputIds].rows, columns[kInputIds].width, columns[kMaskedLmPositions].width};
  }
};

Handle open_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(path, error.message());
  if (std::filesystem::is_directory(status)) fail(path, "is a directory; a shard is one .hdf5 file");
  if (!std::filesystem::is_regular_file(status)) fail(path, "is not a regular file");
  if (std::filesystem::file_size(path, error) == 0) fail(path, "is empty (0 bytes)");

  // Readers take no lock: locking fails on read-only and on some network file systems, and shards are complete once they
  // have their name (docs/formats.md).
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), /*use_file_locking=*/false, /*ignore_when_disabled=*/true);
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  if (file.valid()) return file;
  const std::string reason = hdf5_reason();
  if (H5Fis_hdf5(path.c_str()) == 0) fail(path, "is not an HDF5 file");
  fail(path, "cannot be opened as HDF5: ", reason);
}

/// The first message about foreign files: every dataset that is missing, at once.
void check_datasets_exist(const std::filesystem::path& path, const Handle& file) {
  std::string missing;
  for (const char* name : kColumnNames) {
    if (H5Lexists(file.get(), name, H5P_DEFAULT) > 0) continue;
    missing += missing.empty() ? "" : ", ";
    missing += name;
  }
  if (missing.empty()) return;
  // MLPerf's variable-length shards have no input_mask, so that this is where they are met.
  const Handle ids(H5Dopen2(file.get(), kColumnNames[kInputIds], H5P_DEFAULT), H5Dclose);
  const Handle type(ids.valid() ? H5Dget_type(ids.get()) : H5I_INVALID_HID, H5Tclose);
  if (type.valid() && H5Tget_class(type.get()) == H5T_VLEN) {
    fail(path, kColumnNames[kInputIds], kVariableLength);
  }
  fail(path, "is not a pre-training shard: it has no dataset ", missing);
}

Column open_column(const std::filesystem::path& path, const Handle& file, ColumnIndex index) {
  Column column;
  column.name = kColumnNames[index];
  column.dataset = Handle(H5Dopen2(file.get(), column.name, H5P_DEFAULT), H5Dclose);
  if (!column.dataset.valid()) fail(path, column.name, ": cannot be opened as a dataset: ", hdf5_reason());

  const Handle type(H5Dget_type(column.dataset.get()), H5Tclose);
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (type_class == H5T_VLEN) {
    fail(path, column.name, kVariableLength);
  }
  if (type_class != H5T_INTEGER || H5Tget_size(type.get()) > sizeof(std::int64_t)) {
    fail(path, column.name, ": must hold integers of 1 to 8 bytes, not ",
         type_class == H5T_FLOAT ? "floating-point numbers" : "another type");
  }
  column.is_uint64 = H5Tget_sign(type.get()) == H5T_SGN_NONE && H5Tget_size(type.get()) == sizeof(std::uint64_t);

  const Handle space(H5Dget_space(column.dataset.get()), H5Sclose);
  column.rank = H5Sget_simple_extent_ndims(space.get());
  const int wanted_rank = index == kNextSentenceLabels ? 1 : 2;
  if (column.rank != wanted_rank) fail(path, column.name, ": has ", column.rank, " dimensions, not ", wanted_rank);
  std::array<hsize_t, 2> extent = {0, 1};
  H5Sget_simple_extent_dims(space.get(), extent.data(), nullptr);
  if (std::max(extent[0], extent[1]) > static_cast<hsize_t>(kMaxInt32)) {
    fail(path, column.name, ": has ", extent[0], " rows of ", extent[1], " values; at most ", kMaxInt32,
         " of each are allowed");
  }
  if (extent[1] == 0) fail(path, column.name, ": its rows have no values");
  column.rows = static_cast<std::int64_t>(extent[0]);
  column.width = static_cast<std::int64_t>(extent[1]);

  const Handle creation(H5Dget_create_plist(column.dataset.get()), H5Pclose);
  std::array<hsize_t, 2> chunk = {1, 1};
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED) H5Pget_chunk(creation.get(), column.rank, chunk.data());
  column.chunk_rows = chunk[0];
  return column;
}

/// `column` must have the rows of input_ids and the width of `like`.
void check_agreement(const OpenShard& shard, ColumnIndex index, ColumnIndex like) {
  const Column& column = shard.columns[index];
  const Column& ids = shard.columns[kInputIds];
  if (column.rows != ids.rows) {
    fail(shard.path, column.name, ": has ", column.rows, " rows, but input_ids has ", ids.rows);
  }
  if (column.width != shard.columns[like].width) {
    fail(shard.path, column.name, ": has rows of ", column.width, " values, but ", shard.columns[like].name, " of ",
         shard.columns[like].width);
  }
}

OpenShard open_shard(const std::filesystem::path& path) {
  OpenShard shard;
  shard.path = path;
  shard.file = open_file(path);
  check_datasets_exist(path, shard.file);
  for (int index = 0; index < kNumColumns; ++index) {
    shard.columns[index] = open_column(path, shard.file, static_cast<ColumnIndex>(index));
  }
  check_agreement(shard, kInputMask, kInputIds);
  check_agreement(shard, kSegmentIds, kInputIds);
  check_agreement(shard, kMaskedLmPositions, kMaskedLmPositions);
  check_agreement(shard, kMaskedLmIds, kMaskedLmPositions);
  check_agreement(shard, kNextSentenceLabels, kNextSentenceLabels);
  return shard;
}

/// Rows [first, first + count) of `column` as int64, into `values`.
void read_block(const OpenShard& shard, const Column& column, hsize_t first, hsize_t count,
                std::vector<std::int64_t>& values) {
  const std::array<hsize_t, 2> start = {first, 0};
  const std::array<hsize_t, 2> extent = {count, static_cast<hsize_t>(column.width)};
  values.resize(count * extent[1]);
  const Handle file_space(H5Dget_space(column.dataset.get()), H5Sclose);
  H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr);
  const Handle memory_space(H5Screate_simple(column.rank, extent.data(), nullptr), H5Sclose);
  // HDF5 clamps what a memory type cannot hold, without a word; so values arrive in a type that holds all of them and are
  // narrowed where they are checked.
  const hid_t memory_type = column.is_uint64 ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
  if (H5Dread(column.dataset.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, values.data()) <
      0) {
    fail(shard.path, column.name, ": rows ", first, " to ", first + count - 1, " cannot be read: ", hdf5_reason());
  }
  if (!column.is_uint64) return;
  const auto wrapped = std::find_if(values.begin(), values.end(), [](std::int64_t value) { return value < 0; });
  if (wrapped != values.end()) {
    fail(shard.path, column.name, ": row ", first + static_cast<hsize_t>(wrapped - values.begin()) / extent[1],
         ": value ", static_cast<std::uint64_t>(*wrapped), " is larger than ", kMaxInt32);
  }
}

/// Calls accept(row, values of the row) for every row. Blocks are whole chunks high, so that none is inflated twice.
template <typename Accept>
void for_each_row(const OpenShard& shard, ColumnIndex index, const Accept& accept) {
  const Column& column = shard.columns[index];
  const auto width = static_cast<hsize_t>(column.width);
  const auto rows = static_cast<hsize_t>(column.rows);
  const hsize_t chunks = std::max<hsize_t>(1, kBlockValues / width / column.chunk_rows);
  const hsize_t tallest = std::max<hsize_t>(1, kMaxBlockValues / width);
  const hsize_t block_rows = std::min(chunks * column.chunk_rows, tallest);
  std::vector<std::int64_t> values;
  for (hsize_t first = 0; first < rows; first += block_rows) {
    const hsize_t count = std::min(block_rows, rows - first);
    read_block(shard, column, first, count, values);
    for (hsize_t row = 0; row < count; ++row) {
      accept(static_cast<std::int64_t>(first + row), values.data() + row * width);
    }
  }
}

/// Ids of one kind: what they are called, and what bounds them.
struct IdRange {
  const char* what;
  const char* bound_name;
  std::int64_t bound;  ///< ids lie below it; 0: any int32
};

std::int32_t checked_id(const OpenShard& shard, ColumnIndex index, std::int64_t row, std::int64_t slot,
                        std::int64_t value, const IdRange& range) {
  const std::int64_t largest = range.bound > 0 ? range.bound - 1 : kMaxInt32;
  if (value >= 0 && value <= largest) return static_cast<std::int32_t>(value);
  fail(shard.path, kColumnNames[index], ": row ", row, ", slot ", slot, ": ", range.what, " ", value,
       " is not in 0 to ", largest,
       range.bound > 0 ? c10::str(" (", range.bound_name, " is ", range.bound, ")") : std::string());
}

std::vector<std::int32_t> read_ids(const OpenShard& shard, ColumnIndex index, const IdRange& range) {
  const Column& column = shard.columns[index];
  std::vector<std::int32_t> ids;
  ids.reserve(column.rows * column.width);
  for_each_row(shard, index, [&](std::int64_t row, const std::int64_t* values) {
    for (std::int64_t slot = 0; slot < column.width; ++slot) {
      ids.push_back(checked_id(shard, index, row, slot, values[slot], range));
    }
  });
  return ids;
}

std::vector<std::int32_t> read_lengths(const OpenShard& shard) {
  const Column& column = shard.columns[kInputMask];
  std::vector<std::int32_t> lengths;
  for_each_row(shard, kInputMask, [&](std::int64_t row, const std::int64_t* mask) {
    std::int64_t length = 0;
    for (std::int64_t slot = 0; slot < column.width; ++slot) {
      if (mask[slot] != 0 && mask[slot] != 1) {
        fail(shard.path, column.name, ": row ", row, ", slot ", slot, ": ", mask[slot], " is neither 0 nor 1");
      }
      if (mask[slot] == 0) continue;
      if (slot != length) {
        fail(shard.path, column.name, ": row ", row, ", slot ", slot,
             ": a 1 after a 0; real tokens must come first, padding last");
      }
      ++length;
    }
    if (length == 0) fail(shard.path, column.name, ": row ", row, ": has no real token");
    lengths.push_back(static_cast<std::int32_t>(length));
  });
  return lengths;
}

/// Fills masked_lm_positions and num_labels; `lengths` must be there. Position 0 is always [CLS], which is never masked: the
/// first 0 ends the list, as in NVIDIA's reader, and what stands behind it means nothing.
void read_positions(const OpenShard& open, Shard& shard) {
  const std::int64_t width = shard.shape.max_predictions;
  shard.masked_lm_positions.assign(shard.shape.num_rows * width, 0);
  shard.num_labels.reserve(shard.shape.num_rows);
  for_each_row(open, kMaskedLmPositions, [&](std::int64_t row, const std::int64_t* positions) {
    std::int64_t count = 0;
    std::int64_t previous = 0;
    for (; count < width && positions[count] != 0; ++count) {
      const std::int64_t position = positions[count];
      if (position < 0 || position >= shard.lengths[row]) {
        fail(open.path, "masked_lm_positions: row ", row, ", slot ", count, ": position ", position, " is not in 0 to ",
             shard.lengths[row] - 1, " (the row has ", shard.lengths[row], " real tokens)");
      }
      if (position <= previous) {
        fail(open.path, "masked_lm_positions: row ", row, ", slot ", count, ": position ", position, " follows ",
             previous, "; positions must rise");
      }
      previous = position;
      shard.masked_lm_positions[row * width + count] = static_cast<std::int32_t>(position);
    }
    shard.num_labels.push_back(static_cast<std::int32_t>(count));
  });
}

/// Fills masked_lm_ids; `num_labels` must be there. Slots without a label are not looked at.
void read_labels(const OpenShard& open, const ShardLimits& limits, Shard& shard) {
  const std::int64_t width = shard.shape.max_predictions;
  const IdRange range = {"label", "vocab_size", limits.vocab_size};
  shard.masked_lm_ids.assign(shard.shape.num_rows * width, 0);
  for_each_row(open, kMaskedLmIds, [&](std::int64_t row, const std::int64_t* ids) {
    for (std::int64_t slot = 0; slot < shard.num_labels[row]; ++slot) {
      shard.masked_lm_ids[row * width + slot] = checked_id(open, kMaskedLmIds, row, slot, ids[slot], range);
    }
  });
}

/// Appends the attribute `name` of the root where it is one of the kinds that Attributes holds.
void append_attribute(const Handle& file, const char* name, Attributes& attributes) {
  const Handle attribute(H5Aopen(file.get(), name, H5P_DEFAULT), H5Aclose);
  const Handle space(attribute.valid() ? H5Aget_space(attribute.get()) : H5I_INVALID_HID, H5Sclose);
  const Handle type(attribute.valid() ? H5Aget_type(attribute.get()) : H5I_INVALID_HID, H5Tclose);
  if (!space.valid() || !type.valid() || H5Sget_simple_extent_npoints(space.get()) != 1) return;
  const H5T_class_t type_class = H5Tget_class(type.get());
  if (type_class == H5T_INTEGER) {
    std::int64_t value = 0;
    if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) >= 0) attributes.emplace_back(name, value);
  } else if (type_class == H5T_FLOAT) {
    double value = 0;
    if (H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) >= 0) attributes.emplace_back(name, value);
  } else if (type_class == H5T_STRING && H5Tis_variable_str(type.get()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.get(), type.get(), &text) < 0 || text == nullptr) return;
    attributes.emplace_back(name, std::string(text));
    H5free_memory(text);
  } else if (type_class == H5T_STRING) {
    std::string value(H5Tget_size(type.get()), '\0');
    if (H5Aread(attribute.get(), type.get(), value.data()) < 0) return;
    attributes.emplace_back(name, value.substr(0, value.find('\0')));
  }
}

}  // namespace

Attributes read_attributes(const std::filesystem::path& path) {
  const QuietErrors quiet;
  const Handle file = open_file(path);
  Attributes attributes;
  const auto visit = [](hid_t, const char* name, const H5A_info_t*, void* names) -> herr_t {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return 0;
  };
  std::vector<std::string> names;
  if (H5Aiterate2(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &names) < 0) {
    fail(path, "its attributes cannot be read: ", hdf5_reason());
  }
  for (const std::string& name : names) append_attribute(file, name.c_str(), attributes);
  return attributes;
}

ShardShape read_shard_shape(const std::filesystem::path& path) {
  const QuietErrors quiet;
  return open_shard(path).shape();
}

Shard read_shard(const std::filesystem::path& path, const ShardLimits& limits) {
  const QuietErrors quiet;
  const OpenShard open = open_shard(path);
  Shard shard;
  shard.path = path;
  shard.shape = open.shape();
  // The mask comes first: a dataset that was created and never written reads as zeros and fails here, at its first row.
  shard.lengths = read_lengths(open);
  shard.input_ids = read_ids(open, kInputIds, {"token id", "vocab_size", limits.vocab_size});
  shard.segment_ids = read_ids(open, kSegmentIds, {"segment id", "type_vocab_size", limits.type_vocab_size});
  read_positions(open, shard);
  read_labels(open, limits, shard);
  shard.next_sentence_labels = read_ids(open, kNextSentenceLabels, {"label", "its number of classes", 2});
  return shard;
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  TORCH_INTERNAL_ASSERT(H5get_libversion(&major, &minor, &release) >= 0);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace tempo::data
