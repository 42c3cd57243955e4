#include "data/hdf5_handle.h"

#include <string_view>
#include <utility>

namespace tempo::data {

Handle::Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

Handle::~Handle() { close(); }

bool Handle::close() {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  return id < 0 || close_(id) >= 0;
}

QuietErrors::QuietErrors() {
  H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

QuietErrors::~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

std::string hdf5_reason() {
  std::string reason;
  const auto keep = [](unsigned, const H5E_error2_t* entry, void* text) -> herr_t {
    if (entry->desc != nullptr) *static_cast<std::string*>(text) = entry->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &reason);
  // Where the system refused a call, only its own words: the rest are addresses and times over several lines.
  constexpr std::string_view kSystem = "error message = '";
  const std::size_t words = reason.find(kSystem);
  if (words != std::string::npos) {
    const std::size_t begin = words + kSystem.size();
    return reason.substr(begin, reason.find('\'', begin) - begin);
  }
  return reason.empty() ? "HDF5 gives no reason" : reason;
}

}  // namespace tempo::data
