#include "train/init_from.h"

#include <array>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// Files of other programs are recognised by their first bytes, which cannot be a valid header length.
void check_kind(const fs::path& path) {
  File file(path, File::Mode::read, ExitCode::checkpoint);
  std::array<char, 8> bytes{};
  const std::size_t count = file.read(std::as_writable_bytes(std::span(bytes)));
  const std::string_view begin(bytes.data(), count);
  const bool zipped = begin.starts_with("PK\x03\x04");
  const bool pickled = begin.size() >= 2 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5;
  check(!zipped && !pickled, ExitCode::checkpoint,
        "--init-from {}: this is a file of torch.save() (.pt, .pth) or Keras, not a .safetensors file; convert it: "
        "safetensors.torch.save_file(torch.load('{}', map_location='cpu'), 'weights.safetensors')",
        path.string(), path.filename().string());
  check(!begin.starts_with("\x89HDF"), ExitCode::checkpoint,
        "--init-from {}: this is an HDF5 file, as Keras writes them, not a .safetensors file; export the model as ONNX "
        "and pass it as --model",
        path.string());
}

SafetensorsFile open_weights(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) check_kind(path);
  if (fs::is_regular_file(path, error)) return SafetensorsFile::read(path, TensorTypes::any);
  check(fs::exists(path, error), ExitCode::checkpoint,
        "--init-from {}: no such file or folder; give a .safetensors file, a checkpoint or a run folder",
        path.string());
  return read_weights(open_checkpoint(path));
}

}  // namespace

void load_initial(const fs::path& path, const Graph& graph, const InitialTensors& into) {
  const SafetensorsFile file = open_weights(path);
  const int classifier = into.new_classifier ? graph.classifier() : -1;
  std::set<std::string_view> left_out;
  std::vector<TensorView> views;
  for (const Parameter& p : graph.parameters()) {
    if (p.fixed) continue;
    if (p.layer == classifier) {
      left_out.insert(p.name);
    } else {
      views.push_back({p.name, p.shape, into.parameters.data() + p.offset});
    }
  }
  for (const Constant& constant : graph.constants()) left_out.insert(constant.name);
  for (const Statistic& s : graph.statistics())
    views.push_back({s.name, {s.channels}, into.statistics.data() + s.offset});
  const auto passed_over = [&](const SafetensorsFile::Tensor& tensor) {
    return tensor.name.ends_with(".num_batches_tracked") || left_out.contains(tensor.name);
  };
  if (const std::string difference = file.difference(views, passed_over); !difference.empty()) {
    throw Error(ExitCode::checkpoint,
                fmt::format("--init-from {}: {}; use weights of this model{}", path.string(), difference,
                            into.new_classifier ? ""
                                                : ", or --new-classifier if only the "
                                                  "last layer differs"));
  }
  file.check_finite();
  file.copy_to(views);
}

}  // namespace ddp
