// SPDX-License-Identifier: Apache-2.0
// Safetensors from anywhere: every input is read whole or refused with an Error.
#include <cairn/safetensors.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = ::memfd_create("input", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 || ::pwrite(file, data, size, 0) != ssize_t(size)) return 0;
  try {
    const cairn::SafetensorsFile opened(path);
    for (const auto& name : opened.names()) try {
        const cairn::Tensor t = opened.tensor(name);
        volatile size_t sum = 0;
        for (int64_t i = 0; i < t.type().bytes(); ++i) sum = sum + size_t(t.bytes()[i]);
      } catch (const cairn::Error&) {
      }
  } catch (const cairn::Error& e) {
    if (e.code() == cairn::ErrorCode::internal) __builtin_trap();
  }
  return 0;
}
