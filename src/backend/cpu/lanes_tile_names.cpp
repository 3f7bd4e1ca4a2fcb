// The names of register tiles, in plans.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/amx_kernels.h"
#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "base/error.h"

namespace ddp {
namespace {

std::string name_of(const lanes::ForwardTile& tile) {
  return fmt::format("lanes.{}x{}x{}", tile.channels, tile.rows, tile.columns);
}

std::string forward_name(int index) {
  const lanes::Kernels& all = lanes::kernels();
  if (is_amx(index)) {
    const lanes::AmxForwardTile& tile = amx_tile(index);
    return fmt::format("lanes.amx.{}x{}x{}", tile.channels, tile.rows, tile.columns);
  }
  if (!is_winograd(index)) return name_of(all.forward[index]);
  const lanes::ForwardTile& tile = all.forward[index % all.forward_tiles];
  return fmt::format("lanes.winograd{}.{}x{}", winograd_form(index, Element::fp32).size, tile.channels, tile.columns);
}

std::string weights_name(int index) {
  const lanes::Kernels& all = lanes::kernels();
  if (is_amx_weights(index)) {
    const lanes::AmxGradientTile& tile = amx_gradient_tile(index);
    return fmt::format("lanes.amx.{}x{}{}", lanes::kAmxRows * tile.channels, lanes::kAmxRows * tile.taps,
                       tile.window > 1 ? fmt::format("x{}", tile.window) : "");
  }
  if (index >= all.weights_tiles) {
    const lanes::OuterTile& tile = outer_tile(index);
    const std::string kind = is_winograd_weights(index)
                                 ? fmt::format("winograd{}", winograd_weights_form(index, Element::fp32).size)
                                 : "outer";
    return fmt::format("lanes.{}.{}x{}", kind, tile.rows, tile.vectors);
  }
  return fmt::format("lanes.{}x{}", all.weights[index].channels, all.weights[index].taps);
}

// The value of `key=` in a text of key=value words, or "".
std::string word_of(const std::string& text, const std::string& key) {
  const std::string wanted = " " + key + "=";
  const std::size_t at = (" " + text).find(wanted);
  if (at == std::string::npos) return "";
  const std::size_t begin = at + wanted.size() - 1;
  return text.substr(begin, text.find(' ', begin) - begin);
}

}  // namespace

std::string to_text(const LanesConvTiles& tiles) {
  std::string text = "forward=" + forward_name(tiles.forward);
  if (tiles.data >= 0) text += " data=" + forward_name(tiles.data);
  return text + " weights=" + weights_name(tiles.weights);
}

namespace {

constexpr std::string_view kBf16 = "=bf16.";
constexpr std::string_view kLanesName = "=lanes.";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

std::string bf16_text(const LanesConvTiles& tiles) { return replaced(to_text(tiles), kLanesName, kBf16); }

bool is_bf16_text(const std::string& kernels) { return kernels.find(kBf16) != std::string::npos; }

LanesConvTiles bf16_tiles_from_text(const ConvSpec& spec, const std::string& kernels) {
  return lanes_tiles_from_text(spec, replaced(kernels, kBf16, kLanesName), lanes::uses_amx());
}

LanesConvTiles lanes_tiles_from_text(const ConvSpec& spec, const std::string& kernels, bool with_amx) {
  const lanes::Kernels& all = lanes::kernels();
  const auto pick = [&](const std::string& key, const std::vector<int>& candidates, auto name) {
    const std::string wanted = word_of(kernels, key);
    for (const int i : candidates) {
      if (name(i) == wanted) return i;
    }
    throw Error(ExitCode::preflight,
                fmt::format("the plan requires the kernel '{}={}', which this machine ({}) does not have; the plan was "
                            "created on another kind of processor",
                            key, wanted, all.instruction_set));
  };
  LanesConvTiles tiles;
  tiles.forward = pick("forward", lanes_forward_candidates(spec, with_amx), forward_name);
  if (spec.input_gradient) {
    tiles.data = pick("data", lanes_data_candidates(spec, with_amx), forward_name);
  }
  tiles.weights = pick("weights", lanes_weights_candidates(spec, with_amx), weights_name);
  return tiles;
}

}  // namespace ddp
