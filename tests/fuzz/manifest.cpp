// The two JSON files of a checkpoint, MANIFEST.json and state.json.
#include "checkpoint/manifest.h"

#include "checkpoint/state.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  ddp::fuzz::parses([&] {
    const ddp::Manifest manifest = ddp::parse_manifest(text, "MANIFEST.json");
    ddp::fuzz::require(ddp::to_json(manifest) == text, "a manifest comes back as another one");
  });
  ddp::fuzz::parses([&] {
    const ddp::TrainingState state = ddp::parse_state(text, "state.json");
    const std::string again = ddp::to_json(state);
    ddp::fuzz::require(ddp::to_json(ddp::parse_state(again, "state.json")) == again,
                       "a state comes back as another one");
  });
  return 0;
}
