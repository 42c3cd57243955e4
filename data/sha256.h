// SHA-256 (FIPS 180-4), of what is known at once or comes in parts.
//
// Not for: passwords, signatures. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace tempo::data {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(const void* bytes, std::size_t size);

  /// 64 lower-case hexadecimal digits; nothing may be added afterwards.
  std::string digits();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_of(std::string_view bytes);

}  // namespace tempo::data
