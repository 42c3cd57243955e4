#include "train/event_file.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <chrono>
#include <iterator>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "model/durable_file.h"

namespace tempo::train {
namespace {

namespace fs = std::filesystem;

// Field numbers of TensorFlow's event.proto and summary.proto.
constexpr protozero::pbf_tag_type kEventWallTime = 1;
constexpr protozero::pbf_tag_type kEventStep = 2;
constexpr protozero::pbf_tag_type kEventFileVersion = 3;
constexpr protozero::pbf_tag_type kEventSummary = 5;
constexpr protozero::pbf_tag_type kSummaryValue = 1;
constexpr protozero::pbf_tag_type kValueTag = 1;
constexpr protozero::pbf_tag_type kValueSimple = 2;

constexpr const char* kPrefix = "events.out.tfevents.";
constexpr const char* kVersion = "brain.Event:2";
constexpr std::uint32_t kMaskDelta = 0xA282EAD8;  // TensorFlow's record_writer.h masks checksums of framed data

/// CRC-32C (Castagnoli).
using Checksum = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;

std::uint32_t masked_checksum(const std::string& bytes) {
  Checksum checksum;
  checksum.process_bytes(bytes.data(), bytes.size());
  const std::uint32_t value = checksum.checksum();
  return (value >> 15 | value << 17) + kMaskDelta;
}

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

std::string framed(const std::string& payload) {
  const std::string length = little_endian(std::uint64_t{payload.size()});
  return length + little_endian(masked_checksum(length)) + payload + little_endian(masked_checksum(payload));
}

std::string version_record(double wall_time) {
  std::string payload;
  protozero::pbf_writer event(payload);
  event.add_double(kEventWallTime, wall_time);
  event.add_string(kEventFileVersion, kVersion);
  return framed(payload);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};  // HOST_NAME_MAX is 64
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

/// The step of an event; 0 where it has none.
std::int64_t step_of(const std::string& payload) {
  protozero::pbf_reader event(payload);
  while (event.next()) {
    if (event.tag() == kEventStep) return event.get_int64();
    event.skip();
  }
  return 0;
}

/// Where the records of steps up to `step` end; the first that is later, of `step` with `last_tag`, damaged or not whole ends them.
std::size_t end_of_records(const std::string& bytes, std::int64_t step, const std::string& last_tag) {
  constexpr std::size_t kLength = 8;
  constexpr std::size_t kChecksum = 4;
  std::size_t at = 0;
  while (bytes.size() - at >= kLength + 2 * kChecksum) {
    std::uint64_t length = 0;
    for (std::size_t byte = 0; byte < kLength; ++byte) {
      length |= std::uint64_t{static_cast<unsigned char>(bytes[at + byte])} << (8 * byte);
    }
    if (length > bytes.size() - at - kLength - 2 * kChecksum) break;
    const std::string payload = bytes.substr(at + kLength + kChecksum, length);
    if (bytes.compare(at, payload.size() + kLength + 2 * kChecksum, framed(payload)) != 0) break;
    const std::int64_t of_step = step_of(payload);
    if (of_step > step) break;
    if (of_step == step && !last_tag.empty() && payload.find(last_tag) != std::string::npos) break;
    at += length + kLength + 2 * kChecksum;
  }
  return at;
}

fs::path free_name(const fs::path& folder, double wall_time) {
  const std::string stem = kPrefix + std::to_string(static_cast<std::int64_t>(wall_time)) + "." + host_name() + "." +
                           std::to_string(::getpid()) + ".";
  for (int number = 0;; ++number) {
    const fs::path path = folder / (stem + std::to_string(number));
    if (!fs::exists(path)) return path;
  }
}

}  // namespace

std::string scalar_record(double wall_time, std::int64_t step, const std::vector<Scalar>& scalars) {
  std::string payload;
  protozero::pbf_writer event(payload);
  event.add_double(kEventWallTime, wall_time);
  if (step != 0) event.add_int64(kEventStep, step);
  {
    protozero::pbf_writer summary(event, kEventSummary);
    for (const Scalar& scalar : scalars) {
      protozero::pbf_writer value(summary, kSummaryValue);
      value.add_string(kValueTag, scalar.tag);
      value.add_float(kValueSimple, static_cast<float>(scalar.value));
    }
  }
  return framed(payload);
}

std::vector<fs::path> event_files(const fs::path& folder) {
  const std::string prefix = kPrefix;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().native().compare(0, prefix.size(), prefix) == 0) files.push_back(entry.path());
  }
  return files;
}

void cut_back_events(const fs::path& folder, std::int64_t step, const std::string& last_tag) {
  for (const fs::path& path : event_files(folder)) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const std::size_t end = end_of_records(bytes, step, last_tag);
    std::error_code error;
    if (end == bytes.size()) continue;
    fs::resize_file(path, end, error);
    model::throw_if(error, path, "cannot be cut back");
    model::flush_to_disk(path);  // or a power loss might bring the old records back beside the new ones
  }
}

EventFile::EventFile(const fs::path& folder) {
  const double wall_time = seconds_since_1970();
  path_ = free_name(folder, wall_time);
  file_ = model::open_for_append(path_);
  model::append_text(file_, path_, version_record(wall_time));
}

void EventFile::write(std::int64_t step, const std::vector<Scalar>& scalars) {
  model::append_text(file_, path_, scalar_record(seconds_since_1970(), step, scalars));
}

}  // namespace tempo::train
