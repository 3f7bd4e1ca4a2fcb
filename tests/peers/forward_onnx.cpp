// forward_onnx MODEL.onnx IMAGES COUNT LOGITS [COPY.onnx COPY-FOLDED.onnx]: imports a model and computes its logits
// with the program's network, for the scripts in this folder. IMAGES contains COUNT images as bytes [COUNT][C][H][W],
// which are scaled by 1/255; LOGITS receives float32 [COUNT][classes]. Names and shapes of parameters and running
// statistics are printed, one per line. The copies are re-exports of the model.
//
// forward_onnx --gradient MODEL.onnx IMAGES COUNT GRADIENT: writes the gradient of the mean loss of a training step
// instead, as float32 of all parameters in the printed order; sample n has the label n modulo the number of classes.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "onnx/export.h"
#include "onnx/import.h"
#include "support/graph_forward.h"

namespace {

void write_file(const std::string& path, const char* bytes, std::size_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes, static_cast<std::streamsize>(count));
  ddp::check(static_cast<bool>(file.flush()), ddp::ExitCode::data, "cannot write {}", path);
}

int write_gradient(const ddp::ImportedModel& model, const std::vector<std::uint8_t>& images, std::int64_t count,
                   const std::string& path) {
  std::vector<std::int32_t> labels;
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(static_cast<std::int32_t>(n % model.graph.classes()));
  const std::vector<float> flat = ddp::first_gradient(model.graph, model.parameters, model.statistics, images, labels);
  std::vector<float> all;
  for (const ddp::Parameter& p : model.graph.parameters()) {
    if (!p.fixed) all.insert(all.end(), flat.begin() + p.offset, flat.begin() + p.offset + p.elements());
  }
  write_file(path, reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
  return EXIT_SUCCESS;
}

int run(std::vector<std::string> arguments) {
  const bool gradient = arguments.size() > 1 && arguments[1] == "--gradient";
  if (gradient) arguments.erase(arguments.begin() + 1);
  const ddp::ImportedModel model = ddp::import_onnx(arguments.at(1));
  std::ifstream file(arguments.at(2), std::ios::binary);
  const std::vector<std::uint8_t> images{std::istreambuf_iterator<char>(file), {}};
  const std::int64_t count = std::stoi(arguments.at(3));
  const std::int64_t elements = count * model.graph.shape(0).elements();
  ddp::check(static_cast<std::int64_t>(images.size()) == elements, ddp::ExitCode::data, "{} bytes are not {} images",
             images.size(), count);
  for (const ddp::Parameter& p : model.graph.parameters()) {
    if (!p.fixed) fmt::print("{} {}\n", p.name, fmt::join(p.shape, "x"));
  }
  if (gradient) return write_gradient(model, images, count, arguments.at(4));
  for (const ddp::Statistic& s : model.graph.statistics()) fmt::print("{} {}\n", s.name, s.channels);
  const std::vector<float> logits = ddp::forward_logits(model.graph, model.parameters, model.statistics, images, count);
  write_file(arguments.at(4), reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  for (const std::size_t copy : {std::size_t{5}, std::size_t{6}}) {
    if (copy >= arguments.size()) continue;
    const ddp::ExportedModel exported{model.graph, model.parameters, model.statistics, {}};
    const std::string bytes = to_bytes(export_onnx(exported, {.fold_batch_norm = copy == 6}));
    write_file(arguments[copy], bytes.data(), bytes.size());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const ddp::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
