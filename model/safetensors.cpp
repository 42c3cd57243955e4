#include "model/safetensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "model/durable_file.h"
#include "model/safetensors_header.h"

namespace tempo::model {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "safetensors files are little-endian and are copied as they are");

constexpr std::uint64_t kLengthBytes = 8;               // the u64 before the header
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's cap
constexpr std::uint64_t kHeaderAlignment = 8;           // its writer pads the header to this

struct StoredType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<at::ScalarType> scalar;  ///< none: ATen has no such type
};

// In the order of the reference implementation's enumeration: its writer puts the last of these first.
constexpr std::array<StoredType, 22> kStoredTypes = {{
    {"BOOL", 8, at::kBool},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, at::kByte},
    {"I8", 8, at::kChar},
    {"F8_E5M2", 8, at::kFloat8_e5m2},
    {"F8_E4M3", 8, at::kFloat8_e4m3fn},
    {"F8_E8M0", 8, at::kFloat8_e8m0fnu},
    {"F8_E4M3FNUZ", 8, at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", 8, at::kFloat8_e5m2fnuz},
    {"I16", 16, at::kShort},
    {"U16", 16, at::kUInt16},
    {"F16", 16, at::kHalf},
    {"BF16", 16, at::kBFloat16},
    {"I32", 32, at::kInt},
    {"U32", 32, at::kUInt32},
    {"F32", 32, at::kFloat},
    {"C64", 64, at::kComplexFloat},
    {"F64", 64, at::kDouble},
    {"I64", 64, at::kLong},
    {"U64", 64, at::kUInt64},
}};

const StoredType* find_type(std::string_view name) {
  const auto type =
      std::find_if(kStoredTypes.begin(), kStoredTypes.end(), [&](const auto& t) { return t.name == name; });
  return type == kStoredTypes.end() ? nullptr : &*type;
}

const StoredType* find_type(at::ScalarType scalar) {
  const auto type =
      std::find_if(kStoredTypes.begin(), kStoredTypes.end(), [&](const auto& t) { return t.scalar == scalar; });
  return type == kStoredTypes.end() ? nullptr : &*type;
}

/// The four types that copy_to converts between.
bool is_convertible(std::optional<at::ScalarType> type) {
  return type == at::kHalf || type == at::kBFloat16 || type == at::kFloat || type == at::kDouble;
}

/// Bytes that `info` needs; none when that does not fit 63 bits or is no whole number of bytes. Zero-size tensors are held to
/// the same limit without their zero, because ATen multiplies their strides out.
std::optional<std::uint64_t> needed_bytes(const TensorInfo& info, const StoredType& type) {
  std::int64_t bits = static_cast<std::int64_t>(type.bits);
  bool is_empty = false;
  for (const std::int64_t size : info.shape) {
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(bits, std::max<std::int64_t>(size, 1), &bits)) return std::nullopt;
  }
  if (is_empty) return 0;
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<std::uint64_t>(bits / 8);
}

/// Types, sizes, and that the tensors cover the data without hole, overlap or rest.
void check_layout(const std::string& path, const std::map<std::string, TensorInfo>& tensors, std::uint64_t data_bytes) {
  using Entry = std::pair<const std::string, TensorInfo>;
  std::vector<const Entry*> by_offset;
  for (const Entry& entry : tensors) {
    const auto& [name, info] = entry;
    const StoredType* type = find_type(info.dtype);
    TORCH_CHECK_VALUE(type != nullptr, path, ": tensor ", excerpt(name), ": unknown type ", excerpt(info.dtype));
    const auto bytes = needed_bytes(info, *type);
    TORCH_CHECK_VALUE(bytes.has_value(), path, ": tensor ", excerpt(name), ": impossible shape ",
                      c10::IntArrayRef(info.shape), " of ", info.dtype);
    TORCH_CHECK_VALUE(info.begin <= info.end && info.end - info.begin == *bytes, path, ": tensor ", excerpt(name),
                      ": shape ", c10::IntArrayRef(info.shape), " of ", info.dtype, " needs ", *bytes,
                      " bytes, but data_offsets are [", info.begin, ", ", info.end, "]");
    TORCH_CHECK_VALUE(info.end <= data_bytes, path, ": is cut: tensor ", excerpt(name), " ends at byte ", info.end,
                      " of the data, of which the file has ", data_bytes);
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  for (const Entry* entry : by_offset) {
    const auto& [name, info] = *entry;
    TORCH_CHECK_VALUE(
        info.begin == covered, path, ": tensor ", excerpt(name), " begins at byte ", info.begin,
        info.begin < covered ? ", inside the tensor before it, which ends at byte " : ", leaving a hole after byte ",
        covered, " of the data");
    covered = info.end;
  }
  TORCH_CHECK_VALUE(covered == data_bytes, path, ": ", data_bytes - covered,
                    " bytes after the last tensor belong to none");
}

/// A file mapped for reading. An empty one is not mapped.
class Mapping {
 public:
  explicit Mapping(const std::filesystem::path& path) {
    struct stat status = {};
    TORCH_CHECK_VALUE(::stat(path.c_str(), &status) == 0, path.string(), ": ", std::strerror(errno));
    // Before it is opened: opening a pipe would wait for its writer.
    TORCH_CHECK_VALUE(S_ISREG(status.st_mode), path.string(), ": is not a regular file");
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    TORCH_CHECK_VALUE(descriptor >= 0, path.string(), ": ", std::strerror(errno));
    size_ = ::fstat(descriptor, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
    if (size_ > 0) bytes_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int reason = errno;
    ::close(descriptor);
    TORCH_CHECK_VALUE(bytes_ != MAP_FAILED, path.string(), ": cannot be mapped: ", std::strerror(reason));
  }
  ~Mapping() {
    if (size_ > 0) ::munmap(bytes_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const char* data() const { return static_cast<const char*>(bytes_); }
  std::uint64_t size() const { return size_; }

 private:
  void* bytes_ = nullptr;
  std::uint64_t size_ = 0;
};

/// The header's text, with its length checked against the file.
std::string_view header_text(const std::string& path, const Mapping& mapping) {
  TORCH_CHECK_VALUE(mapping.size() >= kLengthBytes, path, ": is no safetensors file: ", mapping.size(), " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, mapping.data(), kLengthBytes);
  TORCH_CHECK_VALUE(length <= kMaxHeaderBytes, path, ": is no safetensors file: a header of ", length,
                    " bytes is announced; at most ", kMaxHeaderBytes, " are allowed");
  TORCH_CHECK_VALUE(length <= mapping.size() - kLengthBytes, path, ": is cut: a header of ", length,
                    " bytes is announced, the file has ", mapping.size());
  const std::string_view text(mapping.data() + kLengthBytes, length);
  // The JSON parser skips a byte order mark and stops at a zero byte; the format has neither.
  const auto first = text.find_first_not_of(" \t\r\n");
  TORCH_CHECK_VALUE(first != std::string_view::npos && text[first] == '{' && text.find('\0') == std::string_view::npos,
                    path, ": is no safetensors file: the header is not a JSON object");
  return text;
}

std::string json_text(const std::filesystem::path& path, const std::string& name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(false, path.string(), ": tensor ", excerpt(name), " has no name in UTF-8: ", error.what());
  }
}

}  // namespace

struct SafetensorsReader::Impl {
  explicit Impl(const std::filesystem::path& file) : path(file.string()), mapping(file) {
    const std::string_view text = header_text(path, mapping);
    HeaderEvents events;
    const bool is_complete = nlohmann::json::sax_parse(text.begin(), text.end(), &events);
    TORCH_CHECK_VALUE(is_complete, path, ": ", events.error);
    const std::uint64_t data_begin = kLengthBytes + text.size();
    check_layout(path, events.tensors, mapping.size() - data_begin);
    data = mapping.data() + data_begin;
    tensors = std::move(events.tensors);
    metadata = std::move(events.metadata);
  }

  const TensorInfo& find(const std::string& name) const {
    const auto entry = tensors.find(name);
    TORCH_CHECK_VALUE(entry != tensors.end(), path, ": has no tensor ", excerpt(name));
    return entry->second;
  }

  std::string path;
  Mapping mapping;
  const char* data = nullptr;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;

const std::map<std::string, TensorInfo>& SafetensorsReader::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsReader::metadata() const { return impl_->metadata; }

std::string_view SafetensorsReader::header() const {
  return {impl_->mapping.data(), static_cast<std::size_t>(impl_->data - impl_->mapping.data())};
}

std::string_view SafetensorsReader::bytes(const std::string& name) const {
  const TensorInfo& info = impl_->find(name);
  return {impl_->data + info.begin, info.end - info.begin};
}

void SafetensorsReader::copy_to(const std::string& name, const at::Tensor& destination) const {
  const TensorInfo& info = impl_->find(name);
  TORCH_CHECK_VALUE(destination.sizes() == c10::IntArrayRef(info.shape), impl_->path, ": tensor ", excerpt(name),
                    " has shape ", c10::IntArrayRef(info.shape), ", not the expected ", destination.sizes());
  const auto scalar = find_type(info.dtype)->scalar;
  TORCH_CHECK_VALUE(is_convertible(scalar), impl_->path, ": tensor ", excerpt(name), " is of type ", info.dtype,
                    "; F16, BF16, F32 or F64 is needed");
  TORCH_CHECK(is_convertible(destination.scalar_type()), "tensor ", excerpt(name), " is to be read into ",
              destination.scalar_type());
  if (destination.numel() == 0) return;
  const char* bytes = impl_->data + info.begin;
  // A header of odd length leaves the data unaligned. The copy lies in plain memory: loading is not part of a step's peak.
  std::vector<double> aligned;
  if (reinterpret_cast<std::uintptr_t>(bytes) % c10::elementSize(*scalar) != 0) {
    aligned.resize((info.end - info.begin + sizeof(double) - 1) / sizeof(double));
    std::memcpy(aligned.data(), bytes, info.end - info.begin);
    bytes = reinterpret_cast<const char*>(aligned.data());
  }
  const at::NoGradGuard no_grad;
  destination.copy_(at::from_blob(const_cast<char*>(bytes), info.shape, *scalar));
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const TensorInfo& info = impl_->find(name);
  const auto scalar = find_type(info.dtype)->scalar;
  TORCH_CHECK_VALUE(scalar.has_value(), impl_->path, ": tensor ", excerpt(name), " is of type ", info.dtype,
                    ", which LibTorch cannot hold");
  const char* bytes = impl_->data + info.begin;
  const std::uint64_t size = info.end - info.begin;
  if (scalar == at::kBool) {
    const bool is_boolean = std::all_of(bytes, bytes + size, [](char byte) { return byte == 0 || byte == 1; });
    TORCH_CHECK_VALUE(is_boolean, impl_->path, ": tensor ", excerpt(name),
                      " is of type BOOL and holds bytes other than 0 and 1");
  }
  at::Tensor tensor = at::empty(info.shape, *scalar);
  if (size != 0) std::memcpy(tensor.data_ptr(), bytes, size);
  return tensor;
}

std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  struct Entry {
    const std::string* name;
    const at::Tensor* tensor;
    const StoredType* type;
  };
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    const StoredType* type = find_type(tensor.scalar_type());
    TORCH_CHECK(type != nullptr, path.string(), ": tensor ", excerpt(name), ": safetensors has no type ",
                tensor.scalar_type());
    TORCH_CHECK(!tensor.is_meta(), path.string(), ": tensor ", excerpt(name), " has no data (meta device)");
    TORCH_CHECK(name != kMetadataKey, path.string(), ": a tensor cannot be called ", kMetadataKey);
    entries.push_back({&name, &tensor, type});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.type != b.type ? a.type > b.type : *a.name < *b.name; });

  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  std::map<std::string, bool> seen;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor, type] : entries) {
    TORCH_CHECK(seen.emplace(*name, true).second, path.string(), ": two tensors are called ", excerpt(*name));
    const std::uint64_t end = offset + tensor->nbytes();
    header += "," + json_text(path, *name) + ":{\"dtype\":\"" + std::string(type->name) +
              "\",\"shape\":" + nlohmann::json(tensor->sizes().vec()).dump() + ",\"data_offsets\":[" +
              std::to_string(offset) + "," + std::to_string(end) + "]}";
    offset = end;
  }
  header += "}";
  header.append((kHeaderAlignment - header.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  const std::uint64_t length = header.size();

  header.insert(0, reinterpret_cast<const char*>(&length), sizeof(length));
  DurableFile file(path);
  file.write(header);
  for (const Entry& entry : entries) {
    const at::Tensor on_host = entry.tensor->detach().cpu().resolve_conj().resolve_neg().contiguous();
    file.write(on_host.const_data_ptr(), on_host.nbytes());
  }
  file.commit();
  return header;
}

}  // namespace tempo::model
