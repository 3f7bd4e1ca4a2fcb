// The names of register tiles, in plans.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/winograd/winograd.h"
#include "backend/cpu/isa/instruction_set.h"
#include "base/error.h"

namespace ddp {
namespace {

std::string name_of(const lanes::ForwardTile& tile) {
  return fmt::format("lanes.{}x{}x{}", tile.channels, tile.rows, tile.columns);
}

std::string forward_name(const ConvTile& chosen) {
  if (is_amx(chosen)) {
    const lanes::AmxForwardTile& tile = lanes::amx_kernels().forward[chosen.index];
    return fmt::format("lanes.amx.{}x{}x{}", tile.channels, tile.rows, tile.columns);
  }
  const lanes::ForwardTile& tile = lanes::conv_kernels().forward[chosen.index];
  if (!is_winograd(chosen)) return name_of(tile);
  return fmt::format("lanes.winograd{}.{}x{}", winograd_form(chosen.form, Element::fp32).size, tile.channels,
                     tile.columns);
}

std::string weights_name(const WeightTile& chosen) {
  switch (chosen.method) {
    case WeightTile::Method::amx: {
      const lanes::AmxGradientTile& tile = lanes::amx_kernels().gradient[chosen.index];
      return fmt::format("lanes.amx.{}x{}{}", lanes::kAmxRows * tile.channels, lanes::kAmxRows * tile.taps,
                         tile.window > 1 ? fmt::format("x{}", tile.window) : "");
    }
    case WeightTile::Method::winograd:
      return fmt::format("lanes.winograd{}.{}x{}", winograd_form(chosen.form, Element::fp32).size,
                         outer_tile(chosen.index).rows, outer_tile(chosen.index).vectors);
    case WeightTile::Method::outer:
      return fmt::format("lanes.outer.{}x{}", outer_tile(chosen.index).rows, outer_tile(chosen.index).vectors);
    case WeightTile::Method::direct:
      break;
  }
  const lanes::WeightsTile& tile = lanes::gradient_kernels().weights[chosen.index];
  return fmt::format("lanes.{}x{}", tile.channels, tile.taps);
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
  if (tiles.data) text += " data=" + forward_name(*tiles.data);
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
  const auto pick = [&](const std::string& key, const auto& candidates, auto name) {
    const std::string wanted = word_of(kernels, key);
    for (const auto& tile : candidates) {
      if (name(tile) == wanted) return tile;
    }
    throw Error(ExitCode::preflight,
                fmt::format("the plan requires the kernel '{}={}', which this machine ({}) does not have; the plan was "
                            "created on another kind of processor",
                            key, wanted, lanes::instruction_set_name()));
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
