// SHA-256 (FIPS 180-4), by OpenSSL.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace plumbline {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(const void* data, size_t bytes);
  std::string HexDigest();  // 64 lower-case digits; call once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace plumbline
