// Safetensors files. The length field usually follows changes to the header.
#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>

#include "fuzz.h"

namespace {

constexpr std::size_t kLength = 8;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  float weight[6] = {};
  float bias[2] = {};
  const std::vector<ddp::TensorView> views = {{"fc.weight", {2, 3}, weight}, {"fc.bias", {2}, bias}};
  for (const ddp::TensorTypes types : {ddp::TensorTypes::f32, ddp::TensorTypes::any}) {
    ddp::fuzz::parses([&] {
      const ddp::SafetensorsFile file("fuzz.safetensors", bytes, types);
      std::size_t total = 0;
      for (const ddp::SafetensorsFile::Tensor& tensor : file.tensors()) {
        ddp::fuzz::require(tensor.begin == total && tensor.end >= tensor.begin, "a gap or an overlap was let through");
        total = tensor.end;
      }
      ddp::fuzz::require(total <= size, "a tensor ends behind the file");
      file.check_same(views);
      file.copy_to(views);
    });
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  ddp::fuzz::Dice dice(seed);
  std::uint64_t length = 0;
  if (size >= kLength) std::memcpy(&length, data, kLength);
  if (size < kLength || length > size - kLength || most < kLength + 1 || dice.roll(16) == 0) {
    return LLVMFuzzerMutate(data, size, most);
  }
  const auto middle = data + kLength + static_cast<std::ptrdiff_t>(length);
  ddp::fuzz::Bytes header(data + kLength, middle);
  ddp::fuzz::Bytes tensors(middle, data + size);
  ddp::fuzz::mutate(dice.roll(8) == 0 ? tensors : header, most - kLength);
  length = header.size();
  if (kLength + header.size() + tensors.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, &length, kLength);
  std::copy(header.begin(), header.end(), data + kLength);
  std::copy(tensors.begin(), tensors.end(), data + kLength + static_cast<std::ptrdiff_t>(length));
  return kLength + header.size() + tensors.size();
}
