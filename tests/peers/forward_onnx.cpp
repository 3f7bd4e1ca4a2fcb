// forward_onnx MODEL.onnx INPUT COUNT OUTPUT: imports a model and computes its logits, for the scripts beside this one.
// INPUT holds COUNT images as float32 [COUNT][C][H][W]; OUTPUT becomes the logits as float32 [COUNT][classes]. The names
// and shapes of the parameters go to standard output, one a line.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/onnx/import.h"
#include "support/graph_reference.h"

namespace {

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

int run(const std::vector<std::string>& arguments) {
  const ddp::ImportedModel model = ddp::import_onnx(arguments.at(1));
  const std::vector<float> images = read_floats(arguments.at(2));
  const auto count = static_cast<std::size_t>(std::stoi(arguments.at(3)));
  const auto elements = static_cast<std::size_t>(model.graph.shape(0).elements());
  ddp::check(images.size() == count * elements, ddp::ExitCode::data, "{} floats are not {} images of {}", images.size(),
             count, elements);
  for (const ddp::Parameter& p : model.graph.parameters()) fmt::print("{} {}\n", p.name, fmt::join(p.shape, "x"));
  for (const ddp::Statistic& s : model.graph.statistics()) fmt::print("{} {}\n", s.name, s.channels);
  ddp::GraphReference reference(model.graph, model.parameters, model.statistics);
  std::ofstream output(arguments.at(4), std::ios::binary);
  for (std::size_t i = 0; i < count; ++i) {
    for (const double logit : reference.logits(std::span(images).subspan(i * elements, elements))) {
      const auto value = static_cast<float>(logit);
      output.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  return output.flush() ? EXIT_SUCCESS : EXIT_FAILURE;
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
