// The output folder of `tempo prepare`: one process at a time, and shards that appear together.
//
//   NAME_training_0000.hdf5 ...          rows to train on
//   validation/NAME_test_0000.hdf5 ...   rows held out, where prepare.validation asks for them
//   vocab.txt, tokenizer_config.json     the tokenizer, as transformers reads it
//   prepare.json                         what was made from what; written last
//   .partial/                            the shards while they are written; gone when prepare.json is there
// A killed prepare leaves .partial/; the next one removes it and starts over. Shards get their names only when all are
// complete and on the disk; while they do, .partial/moving names them, and a folder with that file is not to be trained on.
//
// Not for: what is in the shards (data/prepare.h). Thread rule: one owner.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace tempo::train {

class ShardFolder {
 public:
  /// Throws c10::ValueError when the folder is a file, holds a finished set and `overwrite` is false, or .hdf5 files of
  /// others. Touches nothing.
  static void check(const std::filesystem::path& folder, bool overwrite);

  /// check, then takes the folder (made when it is not there) and empties .partial/. Throws c10::ValueError when another
  /// process prepares into it or it cannot be written.
  ShardFolder(std::filesystem::path folder, bool overwrite);

  /// Without commit nothing is left but what was there before.
  ~ShardFolder();
  ShardFolder(const ShardFolder&) = delete;
  ShardFolder& operator=(const ShardFolder&) = delete;

  /// Where shards are written; has a folder validation/.
  const std::filesystem::path& staging() const { return staging_; }

  /// Flushes `shards` (relative to staging()), gives them their names, in place of an older set's, and writes `texts` (name,
  /// content), the last of which completes the folder.
  void commit(const std::vector<std::filesystem::path>& shards,
              const std::vector<std::pair<std::string, std::string>>& texts);

  /// Throws c10::ValueError when `shard` lies in a folder in which a prepare was killed while shards got their names.
  static void check_shard(const std::filesystem::path& shard);

 private:
  std::filesystem::path folder_;
  std::filesystem::path staging_;
  int lock_ = -1;
  std::vector<std::filesystem::path> made_folders_;  ///< by this object, innermost first
  bool committed_ = false;
};

/// The file that completes the folder; its member "shards" lists [{"path", "rows"}].
inline constexpr const char* kPrepareManifest = "prepare.json";

}  // namespace tempo::train
