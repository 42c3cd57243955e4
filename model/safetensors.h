// Reads and writes .safetensors files (docs/formats.md, "safetensors").
//
// Not for: what the tensors mean (hf_weights.h). Thread rule: a reader is immutable after it is opened.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tempo::model {

/// One tensor of a file, before its bytes are read.
struct TensorInfo {
  std::string dtype;  ///< as in the header: "F32", "BF16", "I64" ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< bytes, relative to the start of the data
  std::uint64_t end = 0;
};

/// A memory-mapped file. Opening checks the whole header as the reference implementation does: it refuses holes, overlaps,
/// trailing bytes, sizes that disagree with shape and type, unknown types, doubled names and headers over 100 MB, before
/// anything large is allocated.
class SafetensorsReader {
 public:
  /// Throws c10::ValueError naming the file and what is wrong with it.
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, TensorInfo>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  bool contains(const std::string& name) const { return tensors().count(name) != 0; }

  /// Copies the tensor called `name` into `destination`, which must have its shape; converts between floating types
  /// (F16, BF16, F32, F64). Throws c10::ValueError naming file and tensor for another shape or a type that is no float.
  void copy_to(const std::string& name, const at::Tensor& destination) const;

  /// The file up to its data: length and header. Valid as long as the reader.
  std::string_view header() const;

  /// The bytes of the tensor called `name`, as they stand in the file. Valid as long as the reader.
  std::string_view bytes(const std::string& name) const;

  /// The tensor called `name` in its own type, copied out of the file. Types ATen has no scalar for are refused.
  at::Tensor read(const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes `tensors` (any device, made contiguous and copied to the host one at a time) with the metadata of transformers
/// ({"format": "pt"}), ordered as the reference writer orders them (widest type first, then name), to `path`: first to a file
/// beside it, flushed to the disk, then renamed. Returns the file's bytes up to its data. Throws c10::Error naming path and errno;
/// nothing is left under `path` then.
std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors);

}  // namespace tempo::model
