#include "plumbline/base/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "plumbline/base/check.h"

namespace plumbline {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  PLUMBLINE_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(const void* data, size_t bytes) {
  PLUMBLINE_CHECK(EVP_DigestUpdate(context_->evp, data, bytes) == 1);
}

std::string Sha256::HexDigest() {
  unsigned char digest[32];
  PLUMBLINE_CHECK(EVP_DigestFinal_ex(context_->evp, digest, nullptr) == 1);
  std::string hex;
  for (unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace plumbline
