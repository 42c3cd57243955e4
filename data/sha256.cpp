#include "data/sha256.h"

#include <c10/util/Exception.h>
#include <openssl/evp.h>

#include <array>

namespace tempo::data {

struct Sha256::Context {
  EVP_MD_CTX* state = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(state); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TORCH_INTERNAL_ASSERT(EVP_DigestInit_ex(context_->state, EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
}
Sha256::~Sha256() = default;

void Sha256::add(const void* bytes, std::size_t size) {
  TORCH_INTERNAL_ASSERT(EVP_DigestUpdate(context_->state, bytes, size) == 1, "OpenSSL cannot compute SHA-256");
}

std::string Sha256::digits() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int num_bytes = 0;
  TORCH_INTERNAL_ASSERT(EVP_DigestFinal_ex(context_->state, digest.data(), &num_bytes) == 1,
                        "OpenSSL cannot compute SHA-256");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int byte = 0; byte < num_bytes; ++byte) {
    text += kDigits[digest[byte] >> 4];
    text += kDigits[digest[byte] & 15];
  }
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.digits();
}

}  // namespace tempo::data
