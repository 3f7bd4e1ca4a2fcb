// ONNX files, with external weights. Mutations usually keep the messages well-formed.
#include <algorithm>
#include <fstream>

#include "fuzz.h"
#include "model/stages.h"
#include "onnx/export.h"
#include "onnx/import.h"
#include "support/temporary_folder.h"
#include "wire.h"

namespace {

// A folder with weights.bin next to the model.
struct Folder {
  ddp::TemporaryFolder folder;
  std::filesystem::path model = folder.path() / "model.onnx";

  Folder() { std::ofstream(folder.path() / "weights.bin") << std::string(64, 'w'); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder place;
  {
    std::ofstream stream(place.model, std::ios::binary | std::ios::trunc);
    stream.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  ddp::fuzz::parses([&] {
    const ddp::ImportedModel model = ddp::import_onnx(place.model);
    (void)ddp::make_stages(model.graph, 2);
    const ddp::ExportedModel exported{model.graph, model.parameters, model.statistics, {}};
    const std::string bytes = ddp::to_bytes(ddp::export_onnx(exported, {}));
    const ddp::ImportedModel again = ddp::import_onnx_bytes(bytes, "again.onnx");
    ddp::fuzz::require(again.parameters == model.parameters && again.statistics == model.statistics,
                       "a network comes back with other weights");
  });
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  ddp::fuzz::Dice dice(seed);
  ddp::fuzz::Message message;
  if (dice.roll(16) == 0 || !ddp::fuzz::parse_wire({data, size}, message)) return LLVMFuzzerMutate(data, size, most);
  for (std::size_t changes = 1 + dice.roll(3); changes > 0; --changes) ddp::fuzz::mutate(message, dice);
  const ddp::fuzz::Bytes bytes = ddp::fuzz::wire_of(message);
  if (bytes.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}
