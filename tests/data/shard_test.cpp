#include "data/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <limits>
#include <numeric>
#include <thread>

#include "tests/support/shard_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/value_error.h"

namespace tempo::data {
namespace {

using ::testing::AllOf;
using testing::delete_dataset;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::fixture_f1_rows;
using ::testing::HasSubstr;
using testing::ShardLayout;
using testing::ShardRows;
using testing::TemporaryDirectory;
using testing::write_dataset;
using testing::write_shard;

const ShardLimits kF1Limits = {16, 2};

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(TEMPO_GOLDEN_FOLDER) / "nvidia_shards" / name;
}

constexpr const char* kNoError = "(no c10::ValueError was thrown)";

/// What read_shard says about a file that it must refuse.
std::string error_of(const std::filesystem::path& path, const ShardLimits& limits = kF1Limits) {
  return testing::value_error_of([&] { read_shard(path, limits); });
}

class ShardTest : public ::testing::Test {
 protected:
  /// Whether a shard was read or refused, nothing of it stays open.
  void TearDown() override { EXPECT_EQ(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0); }

  /// F1 with changes to its rows.
  template <typename Change>
  std::filesystem::path changed(const Change& change, hid_t type = H5T_STD_I32LE) {
    ShardRows rows = fixture_f1_rows();
    change(rows);
    write_shard(path, rows, type);
    return path;
  }

  /// F1 with one dataset in another form.
  std::filesystem::path replaced(const std::string& name, const std::vector<hsize_t>& shape,
                                 const std::vector<std::int64_t>& values, hid_t type = H5T_STD_I32LE) {
    write_shard(path, fixture_f1_rows());
    delete_dataset(path, name);
    write_dataset(path, name, shape, values, type);
    return path;
  }

  TemporaryDirectory folder;
  std::filesystem::path path = folder / "f1_training_0.hdf5";
};

void expect_f1(const Shard& shard) {
  EXPECT_EQ(shard.shape.num_rows, 4);
  EXPECT_EQ(shard.shape.sequence_length, 10);
  EXPECT_EQ(shard.shape.max_predictions, 4);
  const ShardRows rows = fixture_f1_rows();
  EXPECT_THAT(shard.input_ids, ElementsAreArray(rows.input_ids));
  EXPECT_THAT(shard.segment_ids, ElementsAreArray(rows.segment_ids));
  EXPECT_THAT(shard.masked_lm_positions, ElementsAreArray(rows.masked_lm_positions));
  EXPECT_THAT(shard.masked_lm_ids, ElementsAreArray(rows.masked_lm_ids));
  EXPECT_THAT(shard.lengths, ElementsAre(8, 7, 9, 10));
  EXPECT_THAT(shard.num_labels, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(shard.next_sentence_labels, ElementsAre(0, 0, 1, 1));
}

template <typename T>
std::int64_t sum(const std::vector<T>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

TEST_F(ShardTest, ReadsEveryIntegerTypeByteOrderAndLayoutAlike) {
  const hid_t types[] = {H5T_STD_I8LE,  H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_U8LE,  H5T_STD_U16LE,
                         H5T_STD_U32LE, H5T_STD_U64LE, H5T_STD_I16BE, H5T_STD_I32BE, H5T_STD_I64BE, H5T_STD_U64BE};
  for (const hid_t type : types) {
    for (const ShardLayout layout : {ShardLayout::kContiguous, ShardLayout::kChunked, ShardLayout::kGzip}) {
      write_shard(path, fixture_f1_rows(), type, layout);
      expect_f1(read_shard(path, kF1Limits));
      std::filesystem::remove(path);
    }
  }
}

// Sums taken with h5py from the files as NVIDIA's script wrote them.
TEST(RealShard, HasTheContentsThatH5pySees) {
  const Shard shard = read_shard(golden("nv_seq128_training_0.hdf5"), {30522, 2});
  EXPECT_EQ(shard.shape.num_rows, 144);
  EXPECT_EQ(shard.shape.sequence_length, 128);
  EXPECT_EQ(shard.shape.max_predictions, 20);
  EXPECT_EQ(sum(shard.input_ids), 40054983);
  EXPECT_EQ(sum(shard.lengths), 11297);
  EXPECT_EQ(sum(shard.segment_ids), 6064);
  EXPECT_EQ(sum(shard.masked_lm_positions), 89484);
  EXPECT_EQ(sum(shard.masked_lm_ids), 6735866);
  EXPECT_EQ(sum(shard.num_labels), 1682);
  EXPECT_EQ(sum(shard.next_sentence_labels), 95);
  std::int64_t weighted = 0;
  for (std::size_t slot = 0; slot < shard.input_ids.size(); ++slot) {
    weighted += shard.input_ids[slot] * static_cast<std::int64_t>((slot + 1) % 1009);
  }
  EXPECT_EQ(weighted, 18923570435);
}

TEST(RealShard, OfFivehundredTwelveTokensIsReadToo) {
  const Shard shard = read_shard(golden("nv_seq512_training_0.hdf5"), {30522, 2});
  EXPECT_EQ(shard.shape.num_rows, 57);
  EXPECT_EQ(shard.shape.sequence_length, 512);
  EXPECT_EQ(shard.shape.max_predictions, 80);
  EXPECT_EQ(sum(shard.input_ids), 40107922);
  EXPECT_EQ(sum(shard.masked_lm_ids), 6500508);
  EXPECT_EQ(sum(shard.num_labels), 1665);
}

TEST_F(ShardTest, ShapeIsReadWithoutTheRows) {
  changed([](ShardRows& rows) { rows.input_ids[0] = -5; });
  const ShardShape shape = read_shard_shape(path);
  EXPECT_EQ(shape.num_rows, 4);
  EXPECT_EQ(shape.sequence_length, 10);
  EXPECT_EQ(shape.max_predictions, 4);
}

TEST_F(ShardTest, ManyBlocksAreReadInOrder) {
  // 10,000 rows of 256: three blocks contiguous, and blocks of whole chunks.
  const ShardRows rows = testing::numbered_rows(10'000, 256, 1);
  for (const ShardLayout layout : {ShardLayout::kContiguous, ShardLayout::kChunked}) {
    write_shard(path, rows, H5T_STD_I32LE, layout);
    const Shard shard = read_shard(path, {30522, 2});
    EXPECT_TRUE(
        std::equal(rows.input_ids.begin(), rows.input_ids.end(), shard.input_ids.begin(), shard.input_ids.end()));
    std::filesystem::remove(path);
  }
}

TEST_F(ShardTest, WithoutRowsIsAllowed) {
  ShardRows rows;
  rows.sequence_length = 10;
  rows.max_predictions = 4;
  write_shard(path, rows);
  EXPECT_EQ(read_shard(path, kF1Limits).shape.num_rows, 0);
}

TEST_F(ShardTest, MayHoldMoreThanTheSixDatasets) {
  write_shard(path, fixture_f1_rows());
  write_dataset(path, "masked_lm_weights", {4}, {1, 1, 1, 1});
  expect_f1(read_shard(path, kF1Limits));
}

TEST_F(ShardTest, LargeIdsDoNotWrap) {
  for (const std::int64_t id : {32768, 65535, 69999}) {
    changed([&](ShardRows& rows) { rows.input_ids[1] = rows.masked_lm_ids[0] = id; });
    const Shard shard = read_shard(path, {70000, 2});
    EXPECT_EQ(shard.input_ids[1], id);
    EXPECT_EQ(shard.masked_lm_ids[0], id);
    std::filesystem::remove(path);
  }
}

TEST_F(ShardTest, AZeroPositionEndsTheList) {
  changed([](ShardRows& rows) {
    rows.masked_lm_positions[3 * 4 + 2] = 0;  // row D: 1, 3, 0, 7
    rows.masked_lm_ids[3 * 4 + 3] = -1;       // behind the end: not a label
  });
  const Shard shard = read_shard(path, kF1Limits);
  EXPECT_EQ(shard.num_labels[3], 2);
  EXPECT_EQ(std::vector<int>(shard.masked_lm_positions.end() - 4, shard.masked_lm_positions.end()),
            (std::vector<int>{1, 3, 0, 0}));
  EXPECT_EQ(std::vector<int>(shard.masked_lm_ids.end() - 4, shard.masked_lm_ids.end()),
            (std::vector<int>{5, 11, 0, 0}));
}

TEST_F(ShardTest, NamesTheRowOfATokenIdOutsideTheVocabulary) {
  changed([](ShardRows& rows) { rows.input_ids[2 * 10 + 6] = 16; });
  EXPECT_EQ(error_of(path),
            path.string() + ": input_ids: row 2, slot 6: token id 16 is not in 0 to 15 (vocab_size is 16)");
  EXPECT_EQ(error_of(path, {}), kNoError);
}

TEST_F(ShardTest, RefusesIdsThatNoModelHas) {
  struct Case {
    std::int64_t value;
    hid_t type;
    const char* shown;
  };
  const Case cases[] = {{-1, H5T_STD_I8LE, "-1"},
                        {std::int64_t{1} << 31, H5T_STD_I64LE, "2147483648"},
                        {std::int64_t{1} << 31, H5T_STD_U32BE, "2147483648"},
                        {(std::int64_t{1} << 32) + 5, H5T_STD_I64LE, "4294967301"},
                        {std::numeric_limits<std::int64_t>::min() + 5, H5T_STD_U64LE, "9223372036854775813"}};
  for (const Case& each : cases) {
    changed([&](ShardRows& rows) { rows.input_ids[10] = each.value; }, each.type);
    EXPECT_THAT(error_of(path, {}),
                AllOf(HasSubstr("input_ids: row 1"), HasSubstr(each.shown), HasSubstr("2147483647")));
    std::filesystem::remove(path);
  }
}

TEST_F(ShardTest, NamesTheRowOfASegmentTheModelDoesNotHave) {
  changed([](ShardRows& rows) { rows.segment_ids[10 + 1] = 2; });
  EXPECT_THAT(error_of(path),
              HasSubstr("segment_ids: row 1, slot 1: segment id 2 is not in 0 to 1 (type_vocab_size is 2)"));
}

TEST_F(ShardTest, NamesTheRowOfALabelOutsideTheVocabulary) {
  changed([](ShardRows& rows) { rows.masked_lm_ids[4 + 1] = 16; });
  EXPECT_THAT(error_of(path), HasSubstr("masked_lm_ids: row 1, slot 1: label 16 is not in 0 to 15"));
}

TEST_F(ShardTest, NamesTheRowOfANextSentenceLabelThatIsNoClass) {
  changed([](ShardRows& rows) { rows.next_sentence_labels[3] = 2; });
  EXPECT_THAT(error_of(path), HasSubstr("next_sentence_labels: row 3, slot 0: label 2 is not in 0 to 1"));
}

TEST_F(ShardTest, MaskMustBeOnesThenZeros) {
  changed([](ShardRows& rows) { rows.input_mask[10 + 3] = 0; });
  EXPECT_THAT(error_of(path), HasSubstr("input_mask: row 1, slot 4: a 1 after a 0"));
  std::filesystem::remove(path);
  changed([](ShardRows& rows) { rows.input_mask[10 + 3] = 2; });
  EXPECT_THAT(error_of(path), HasSubstr("input_mask: row 1, slot 3: 2 is neither 0 nor 1"));
  std::filesystem::remove(path);
  changed([](ShardRows& rows) { std::fill_n(rows.input_mask.begin() + 20, 10, 0); });
  EXPECT_THAT(error_of(path), HasSubstr("input_mask: row 2: has no real token"));
}

TEST_F(ShardTest, PositionsMustRiseWithinTheRow) {
  const auto with_second_position = [&](std::int64_t position) {
    std::filesystem::remove(path);
    changed([&](ShardRows& rows) { rows.masked_lm_positions[4 + 1] = position; });
    return error_of(path);
  };
  EXPECT_EQ(with_second_position(6), kNoError);
  EXPECT_THAT(with_second_position(7),
              HasSubstr("row 1, slot 1: position 7 is not in 0 to 6 (the row has 7 real tokens)"));
  EXPECT_THAT(with_second_position(10), HasSubstr("position 10 is not in 0 to 6"));
  EXPECT_THAT(with_second_position(-1), HasSubstr("position -1 is not in 0 to 6"));
  EXPECT_THAT(with_second_position(2), HasSubstr("position 2 follows 2; positions must rise"));
  EXPECT_THAT(with_second_position(1), HasSubstr("position 1 follows 2; positions must rise"));
}

TEST_F(ShardTest, ThatIsMissingADirectoryOrEmptyIsNamed) {
  EXPECT_EQ(error_of(path), path.string() + ": No such file or directory");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("is a directory"));
  std::ofstream(path).close();
  EXPECT_EQ(error_of(path), path.string() + ": is empty (0 bytes)");
}

TEST_F(ShardTest, ThatIsNoHdf5FileIsNamed) {
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_EQ(error_of(path), path.string() + ": is not an HDF5 file");
}

TEST_F(ShardTest, CutToHalfItsBytesSaysSo) {
  write_shard(path, fixture_f1_rows());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(error_of(path), AllOf(HasSubstr(path.string()), HasSubstr("truncated file")));
}

TEST_F(ShardTest, CutAnywhereIsRefused) {
  write_shard(path, fixture_f1_rows(), H5T_STD_I32LE, ShardLayout::kGzip);
  for (auto size = std::filesystem::file_size(path); size > 100; size -= 97) {
    std::filesystem::resize_file(path, size - 97);
    EXPECT_THAT(error_of(path), HasSubstr(path.string())) << size - 97;
  }
}

TEST_F(ShardTest, DamagedChunkNamesTheDatasetAndTheRows) {
  std::filesystem::copy_file(golden("nv_seq128_training_0.hdf5"), path);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "input_ids", H5P_DEFAULT);
  const hid_t space = H5Dget_space(dataset);
  haddr_t offset = 0;
  ASSERT_GE(H5Dget_chunk_info(dataset, space, 0, nullptr, nullptr, &offset, nullptr), 0);
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  std::fstream bytes(path, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(static_cast<std::streamoff>(offset));
  bytes.write("\xff\xff\xff\xff", 4);
  bytes.close();
  EXPECT_THAT(error_of(path, {30522, 2}),
              AllOf(HasSubstr("input_ids: rows 0 to 143 cannot be read"), HasSubstr("inflate")));
}

TEST_F(ShardTest, ForeignFileNamesEveryMissingDataset) {
  write_dataset(path, "input_ids", {1, 2}, {1, 2});
  write_dataset(path, "segment_ids", {1, 2}, {0, 0});
  EXPECT_EQ(error_of(path), path.string() +
                                ": is not a pre-training shard: it has no dataset input_mask, "
                                "masked_lm_positions, masked_lm_ids, next_sentence_labels");
}

TEST_F(ShardTest, VariableLengthRowsAreNamedAsSuch) {
  const hid_t type = H5Tvlen_create(H5T_STD_I16LE);
  write_dataset(path, "input_ids", {1}, {}, type);
  EXPECT_THAT(error_of(path), HasSubstr("input_ids: variable-length (MLPerf) shards are not supported"));
  std::filesystem::remove(path);
  replaced("masked_lm_ids", {4}, {}, type);
  EXPECT_THAT(error_of(path), HasSubstr("masked_lm_ids: variable-length (MLPerf) shards are not supported"));
  H5Tclose(type);
}

TEST_F(ShardTest, DatasetsMustHoldIntegers) {
  replaced("segment_ids", {4, 10}, std::vector<std::int64_t>(40, 0), H5T_IEEE_F32LE);
  EXPECT_THAT(error_of(path), HasSubstr("segment_ids: must hold integers of 1 to 8 bytes, not floating-point numbers"));
}

TEST_F(ShardTest, ShapesMustAgree) {
  const std::vector<std::int64_t> zeros(100, 0);
  const auto with = [&](const std::string& name, const std::vector<hsize_t>& shape) {
    std::filesystem::remove(path);
    return error_of(replaced(name, shape, zeros));
  };
  EXPECT_THAT(with("input_ids", {40}), HasSubstr("input_ids: has 1 dimensions, not 2"));
  EXPECT_THAT(with("next_sentence_labels", {4, 1}), HasSubstr("next_sentence_labels: has 2 dimensions, not 1"));
  EXPECT_THAT(with("masked_lm_ids", {3, 4}), HasSubstr("masked_lm_ids: has 3 rows, but input_ids has 4"));
  EXPECT_THAT(with("next_sentence_labels", {5}), HasSubstr("next_sentence_labels: has 5 rows, but input_ids has 4"));
  EXPECT_THAT(with("input_mask", {4, 9}), HasSubstr("input_mask: has rows of 9 values, but input_ids of 10"));
  EXPECT_THAT(with("masked_lm_ids", {4, 5}),
              HasSubstr("masked_lm_ids: has rows of 5 values, but masked_lm_positions of 4"));
  EXPECT_THAT(with("masked_lm_positions", {4, 0}), HasSubstr("masked_lm_positions: its rows have no values"));
}

TEST_F(ShardTest, MoreRowsThanInt32CountsAreRefusedBeforeAnyIsRead) {
  write_shard(path, fixture_f1_rows());
  delete_dataset(path, "input_ids");
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hsize_t extent[] = {hsize_t{1} << 31, 10};
  const hsize_t chunk[] = {1000, 10};
  const hid_t space = H5Screate_simple(2, extent, nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 2, chunk);
  H5Dclose(H5Dcreate2(file, "input_ids", H5T_STD_I32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Pclose(creation);
  H5Sclose(space);
  H5Fclose(file);
  EXPECT_THAT(error_of(path), HasSubstr("input_ids: has 2147483648 rows of 10 values; at most 2147483647"));
}

TEST_F(ShardTest, InAReadOnlyFolderIsRead) {
  write_shard(path, fixture_f1_rows());
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_f1(read_shard(path, kF1Limits));
}

TEST_F(ShardTest, IsReadWhileAnotherProcessHoldsItsLock) {
  write_shard(path, fixture_f1_rows());
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // holds the file as h5py or a writer would, exclusively locked
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    char byte = file >= 0 ? 1 : 0;
    if (::write(ready[1], &byte, 1) == 1 && ::read(done[0], &byte, 1) >= 0) ::_exit(0);
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  const std::string error = error_of(path);
  EXPECT_EQ(::write(done[1], &byte, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(error, kNoError);
}

TEST_F(ShardTest, IsReadByManyThreadsAtOnce) {
  write_shard(path, fixture_f1_rows(), H5T_STD_I16LE, ShardLayout::kGzip);
  std::array<std::thread, 4> threads;
  for (std::thread& thread : threads) thread = std::thread([&] { expect_f1(read_shard(path, kF1Limits)); });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ShardTest, ErrorsAreNotPrintedByHdf5) {
  std::ofstream(path) << "not a shard";
  ::testing::internal::CaptureStderr();
  error_of(path);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tempo::data
