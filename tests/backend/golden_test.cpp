// Every kind of layer against PyTorch's: tests/golden/layers.json, which make_layers.py beside it made.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/device_values.h"
#include "backend/operators_case.h"
#include "support/golden_hash.h"

namespace ddp {
namespace {

using nlohmann::json;
using reference::Values;

// The arrays of a case, as make_layers.py numbers them.
enum class Which : std::uint32_t { x, x2, weight, bias, dy, means, variances, keys };

const json& golden_layers() {
  static const json file = json::parse(std::ifstream(GOLDEN_DIR "/layers.json"));
  return file;
}

std::uint32_t hash_of(const json& test, Which which, std::int64_t k) {
  const std::uint32_t array = 8 * test["seed"].get<std::uint32_t>() + static_cast<std::uint32_t>(which);
  return golden::hash32(65536 * array + static_cast<std::uint32_t>(k));
}

// From -scale to scale.
Values uniform(const json& test, Which which, std::int64_t count, double scale = 1) {
  Values values;
  for (std::int64_t k = 0; k < count; ++k) {
    values.push_back(scale * (static_cast<double>(hash_of(test, which, k) >> 8U) * 0x1p-23 - 1));
  }
  return values;
}

Values values_of(const json& test, const char* name) { return test.value(name, Values{}); }

Shape shape_of(const json& test) { return {test["shape"][0], test["shape"][1], test["shape"][2]}; }

Activation activation_of(const json& test) {
  for (const Activation activation :
       {Activation::relu, Activation::relu6, Activation::sigmoid, Activation::tanh, Activation::none}) {
    if (test["activation"] == to_string(activation)) return activation;
  }
  ADD_FAILURE() << "unknown activation " << test["activation"];
  return Activation::none;
}

// The same padding on all sides.
template <class Spec>
Spec padded(Spec spec, const json& test) {
  spec.window.padding = uniform_padding(test["padding"]);
  return spec;
}

ConvSpec conv_of(const json& test) {
  return {.batch = test["batch"],
          .input = shape_of(test),
          .output_channels = test["channels"],
          .window = square(test["kernel"], test["stride"]),
          .groups = test["groups"],
          .bias = test["bias"],
          .relu = test["relu"],
          .average_pool = test["average_pool"]};
}

PoolSpec pool_of(const json& test) {
  return {.batch = test["batch"],
          .input = shape_of(test),
          .kind = test["maximum"].get<bool>() ? PoolSpec::Kind::maximum : PoolSpec::Kind::average,
          .window = square(test["window"], test["stride"]),
          .count_padding = test["count_padding"]};
}

OpSpec spec_of(const json& test) {
  const std::string op = test["op"];
  const std::int64_t batch = test["batch"];
  const Shape shape = shape_of(test);
  if (op == "conv") return padded(conv_of(test), test);
  if (op == "pool") return padded(pool_of(test), test);
  if (op == "linear") {
    return LinearSpec{batch, shape.channels, test["outputs"], test["bias"], test["relu"], /*input_gradient=*/true};
  }
  if (op == "batch_norm") {
    return BatchNormSpec{batch, shape, test["epsilon"], test["momentum"], activation_of(test), test["add"]};
  }
  if (op == "lrn") return LrnSpec{batch, shape, test["size"], test["alpha"], test["beta"], test["k"]};
  if (op == "dropout") return DropoutSpec{batch, shape, test["rate"], test["stream"]};
  if (op == "add") return AddSpec{batch, shape, activation_of(test)};
  if (op == "gelu") return GeluSpec{batch, shape, test["approximate"] == "tanh" ? GeluForm::tanh : GeluForm::exact};
  EXPECT_EQ(op, "activation");
  return ActivationSpec{batch, shape, activation_of(test)};
}

reference::Inputs inputs_of(const json& test, const OpSpec& spec) {
  const double scale = test.value("input_scale", 1.0);
  const std::int64_t count = batch_of(spec) * input_of(spec).elements();
  reference::Inputs in{
      .x = uniform(test, Which::x, count, scale),
      .parameters = {uniform(test, Which::weight, parameter_elements(spec, 0), test.value("weight_scale", 1.0)),
                     uniform(test, Which::bias, parameter_elements(spec, 1))}};
  if (inputs_of(spec) == 2) in.x2 = uniform(test, Which::x2, count, scale);
  const std::int64_t statistics = statistic_elements(spec) / 2;
  in.statistics = uniform(test, Which::means, statistics);
  for (const double u : uniform(test, Which::variances, statistics)) in.statistics.push_back(1.5 + u);
  for (std::int64_t n = 0; n < batch_of(spec); ++n) in.keys.push_back(hash_of(test, Which::keys, n));
  return in;
}

Expected expected_of(const json& test) {
  return {.forward = {values_of(test, "y"), values_of(test, "statistics")},
          .backward = {values_of(test, "dx"),
                       values_of(test, "dx2"),
                       {values_of(test, "dweight"), values_of(test, "dbias")}},
          // Most layers are the same in training and in evaluation.
          .y_in_evaluation = values_of(test, test.contains("y_in_evaluation") ? "y_in_evaluation" : "y")};
}

class Golden : public Operators {
 protected:
  void SetUp() override {
    Operators::SetUp();
    if (!IsSkipped() && backend().ops().activation_element() != Element::fp32) {
      GTEST_SKIP() << "in bf16 the inputs are others, and rounding decides about ReLU";
    }
  }
};

TEST_P(Golden, LayersAreThoseOfPyTorch) {
  const json& layers = golden_layers()["layers"];
  ASSERT_GE(layers.size(), 30U);
  for (const json& test : layers) {
    const OpSpec spec = spec_of(test);
    const reference::Inputs in = inputs_of(test, spec);
    const Values dy = uniform(test, Which::dy, batch_of(spec) * output_of(spec).elements());
    int layouts = 0;
    for (const Layout x : kLayouts) {
      for (const Layout y : kLayouts) {
        if (!backend().ops().supports(spec, x, y)) continue;
        ++layouts;
        const std::string kernels = backend().ops().choose(spec, x, y, ChoiceMode::fixed).kernels;
        const auto op = backend().ops().make_op(spec, x, y, kernels);
        const std::string what =
            fmt::format("{} of seed {}, {} to {}", kind_of(spec), test["seed"].get<int>(), to_string(x), to_string(y));
        check_op({backend(), *op, spec, x, y, batch_of(spec), tolerance(), what}, in, dy, expected_of(test));
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_GE(layouts, 1) << kind_of(spec);
  }
}

TEST_P(Golden, TheLossIsThatOfPyTorch) {
  for (const json& test : golden_layers()["losses"]) {
    const std::int64_t batch = test["batch"];
    const std::int64_t classes = test["classes"];
    std::vector<std::int32_t> numbers;
    for (std::int64_t n = 0; n < batch; ++n) {
      numbers.push_back(static_cast<std::int32_t>(hash_of(test, Which::keys, n) % static_cast<std::uint32_t>(classes)));
    }
    const DeviceArray<std::int32_t> labels(backend(), numbers);
    const DeviceArray<double> results(backend(), {0, 0});
    DeviceActivation logits(backend(), batch, {classes, 1, 1}, Layout::plain);
    const DeviceActivation gradient(backend(), batch, {classes, 1, 1}, Layout::plain);
    logits.set(uniform(test, Which::x, batch * classes, test["input_scale"]), batch);
    backend().ops().softmax_cross_entropy({batch, classes, Layout::plain, test["smoothing"]},
                                          {logits.data(), labels.data(), batch, gradient.data(),
                                           1.0F / static_cast<float>(batch), results.data(), results.data() + 1});
    const double sum = test["loss_sum"];
    EXPECT_NEAR(results.get()[0], sum, 1e-5 * sum);
    EXPECT_EQ(results.get()[1], test["correct"].get<double>());
    const Values expected = values_of(test, "dlogits");
    const Values actual = gradient.get(batch);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance()) << i;
  }
}

DDP_ON_EVERY_BACKEND(On, Golden);

}  // namespace
}  // namespace ddp
