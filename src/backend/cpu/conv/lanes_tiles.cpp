// Which register tiles can compute a convolution in lanes16, the choice among them by a rule, and their names.
#include <algorithm>
#include <iterator>
#include <vector>

#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/conv/winograd/winograd_gradient.h"
#include "base/error.h"

namespace ddp {
namespace {

using lanes::ConvShape;

using ConvTiles = std::vector<ConvTile>;
using WeightTiles = std::vector<WeightTile>;

// Indices of direct tiles.
std::vector<int> tiles_for(const ConvShape& s, bool pooled, bool single_row) {
  const lanes::ConvKernels& all = lanes::conv_kernels();
  std::vector<int> usable;
  for (int i = 0; i < all.forward_tiles; ++i) {
    const lanes::ForwardTile& tile = all.forward[i];
    if (forward_kernel(tile, s.stride, pooled) == nullptr) continue;
    if (tile.columns > s.out_w || tile.rows > s.out_h || (single_row && tile.rows != 1)) continue;
    usable.push_back(i);
  }
  return usable;
}

ConvTiles direct_tiles_for(const ConvShape& s, bool pooled, bool single_row) {
  ConvTiles usable;
  for (const int index : tiles_for(s, pooled, single_row)) usable.push_back({.index = index});
  return usable;
}

// A convolution of the products of Winograd's algorithm.
ConvShape winograd_products(const WinogradProblem& problem, WinogradForm form) {
  ConvShape products = problem.shape;
  if (problem.spreads) std::swap(products.in_channels, products.out_channels);
  products.out_h = 1;
  products.stride = 1;
  products.out_w = winograd_band(problem.shape, form, kWinogradBlocks, 1).tiles();
  return products;
}

ConvTiles amx_tiles_for(const ConvShape& s, lanes::Epilogue last) {
  const lanes::AmxKernels& all = lanes::amx_kernels();
  ConvTiles usable;
  for (int i = 0; i < all.forward_tiles; ++i) {
    const lanes::AmxForwardTile& tile = all.forward[i];
    const bool fits = tile.columns <= s.out_w && tile.rows <= s.out_h;
    if (fits && tile.kernel[static_cast<int>(last)] != nullptr) {
      usable.push_back({.method = ConvTile::Method::amx, .index = i});
    }
  }
  return usable;
}

// A direction of a convolution, as tiles compute it and as Winograd's algorithm does.
struct Direction {
  ConvShape shape;
  lanes::Epilogue last;
  bool single_row;
  WinogradProblem winograd;
};

// The direct tiles, then those that can compute the products of Winograd's algorithm, form by form, then those with AMX.
ConvTiles all_tiles_for(const Direction& d, bool with_amx) {
  ConvTiles usable = direct_tiles_for(d.shape, d.last == lanes::Epilogue::relu_pool, d.single_row);
  for (int form = 0; form < lanes::kWinogradForms; ++form) {
    const WinogradForm tiles = winograd_form(form, Element::fp32);
    if (!Winograd::supports(d.winograd.shape, tiles)) continue;
    for (const int index : tiles_for(winograd_products(d.winograd, tiles), false, true)) {
      usable.push_back({.method = ConvTile::Method::winograd, .index = index, .form = form});
    }
  }
  if (with_amx) {
    const ConvTiles amx = amx_tiles_for(d.shape, d.last);
    usable.insert(usable.end(), amx.begin(), amx.end());
  }
  return usable;
}

// The phase of the data gradient with the fewest columns, to which all tiles must fit.
ConvShape narrowest_phase(const ConvSpec& spec) {
  const std::vector<DataPhase> phases = data_phases(spec);
  return std::min_element(phases.begin(), phases.end(),
                          [](const DataPhase& a, const DataPhase& b) { return a.shape.out_w < b.shape.out_w; })
      ->shape;
}

Direction forward_direction(const ConvSpec& spec) {
  return {forward_shape(spec), epilogue_of(spec), false, winograd_forward(spec)};
}
Direction data_direction(const ConvSpec& spec) {
  return {narrowest_phase(spec), lanes::Epilogue::none, true, winograd_data(spec)};
}

// The cost of a tile for a shape in vector multiply-adds, with an empirical penalty for few accumulators and for columns at
// distances that the kernel does not know.
double tile_cost(const ConvShape& s, const lanes::ForwardTile& tile) {
  const auto up = [](int value, int unit) { return static_cast<double>((value + unit - 1) / unit * unit); };
  const double work = up(s.out_channels, tile.channels) * up(s.out_h, tile.rows) * up(s.out_w, tile.columns);
  const double apart = s.stride > 2 ? 0.1 * tile.columns : 0;
  return work * (1.0 + 4.0 / (tile.channels * tile.rows * tile.columns) + apart);
}

double tile_cost(const ConvShape& s, const ConvTile& tile) {
  return tile_cost(s, lanes::conv_kernels().forward[tile.index]);
}

// The same for the weight gradient, where reading many planes at once is expensive; not of a tile with AMX.
double weights_cost(const ConvSpec& spec, const WeightTile& chosen) {
  const std::int64_t kernel = spec.window.height * spec.window.width;
  const std::int64_t in = spec.input.channels / spec.groups;
  const std::int64_t out = spec.output_channels / spec.groups;
  if (chosen.method != WeightTile::Method::direct) {
    const lanes::OuterTile& tile = outer_tile(chosen.index);
    const auto work = static_cast<double>(
        kernel * (is_winograd(chosen) ? WinogradGradient::work(forward_shape(spec), tile)
                                      : round_up(out, tile.rows) * round_up(in, kLanes * tile.vectors)));
    return work * (1.1 + 4.0 / (tile.rows * tile.vectors));
  }
  const lanes::WeightsTile& tile = lanes::gradient_kernels().weights[chosen.index];
  const auto work = static_cast<double>(round_up(out, tile.channels) * round_up(in * kernel, tile.taps));
  return work * (1.0 + 4.0 / (tile.channels * tile.taps) + std::max(tile.channels, tile.taps) / 20.0);
}

// The cost model errs by less than this, so that what it finds more expensive is not timed; at most so many are.
constexpr double kWorthTiming = 1.3;
constexpr std::size_t kMostTimed = 5;
// At most this many of those with Winograd's algorithm in tiles of one size.
constexpr std::size_t kMostWinograd = 2;

template <class Tile, class Cost>
std::vector<Tile> shortlist(std::vector<Tile> candidates, Cost cost) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Tile& a, const Tile& b) { return cost(a) < cost(b); });
  std::size_t count = 0;
  while (count < std::min(candidates.size(), kMostTimed) &&
         cost(candidates[count]) <= kWorthTiming * cost(candidates[0])) {
    ++count;
  }
  candidates.resize(count);
  return candidates;
}

// The products of Winograd's algorithm for each pair of channels.
double winograd_work(const ConvShape& s, WinogradForm form) {
  const auto up = [&](int results) { return (results + form.size - 1) / form.size; };
  return static_cast<double>(form.frequencies()) * up(s.out_h) * up(s.out_w);
}

// Winograd's algorithm is worth timing if its tiles save products, and its transforms cost less. With stride 2 these only add,
// and other kernels are slower.
bool worth_timing_winograd(const ConvShape& s, WinogradForm form) {
  const double least_saving = form.stride == 1 ? 1.3 : 1.05;
  constexpr int kLeastChannels = 16;
  const double direct = static_cast<double>(form.window) * form.window * s.out_h * s.out_w;
  return Winograd::supports(s, form) && direct >= least_saving * winograd_work(s, form) &&
         std::min(s.in_channels, s.out_channels) >= kLeastChannels;
}

// The cost of products of outer tiles, which have so many rows together, with inner ones in kernels of outer x inner tiles, each
// of which is used for so many columns of the window: of the products, which take as long as the outer tiles have rows, and of
// loading the factors, twice as fast.
double amx_cost(std::int64_t rows, std::int64_t inner_tiles, int outer, int inner, int columns = 1) {
  const double loads = 0.5 * (outer + inner) / (outer * inner * columns);
  return static_cast<double>(inner_tiles) *
         (static_cast<double>(rows) +
          loads * static_cast<double>(round_up(rows, std::int64_t{outer} * lanes::kAmxRows)));
}

double amx_cost(const ConvShape& s, const lanes::AmxForwardTile& tile) {
  const int outer = tile.channels / lanes::kAmxRows;
  const std::int64_t columns = std::max(s.out_w, tile.columns);
  // Sums of all its results do not fit into the tile registers at once.
  const int inner = outer * tile.rows * tile.columns <= 4 ? tile.rows * tile.columns : tile.columns;
  return amx_cost(s.out_channels, round_up(s.out_h, tile.rows) * round_up(columns, tile.columns), outer, inner);
}

double amx_cost(const ConvSpec& spec, const lanes::AmxGradientTile& tile) {
  const std::int64_t taps = spec.window.width * (spec.input.channels / spec.groups);
  const std::int64_t channels = spec.output_channels / spec.groups;
  return amx_cost(taps, round_up(channels, std::int64_t{tile.channels} * lanes::kAmxRows) / lanes::kAmxRows, tile.taps,
                  tile.channels, tile.window);
}

template <class Tile, class Is>
std::vector<Tile> those(const std::vector<Tile>& tiles, Is is) {
  std::vector<Tile> chosen;
  std::copy_if(tiles.begin(), tiles.end(), std::back_inserter(chosen), is);
  return chosen;
}
template <class Tile>
std::vector<Tile> amx_of(const std::vector<Tile>& tiles) {
  return those(tiles, [](const Tile& tile) { return is_amx(tile); });
}
template <class Tile>
std::vector<Tile> winograd_of(const std::vector<Tile>& tiles, int form) {
  return those(tiles, [&](const Tile& tile) { return is_winograd(tile) && tile.form == form; });
}
double amx_cost(const ConvShape& s, const ConvTile& tile) {
  return amx_cost(s, lanes::amx_kernels().forward[tile.index]);
}
double amx_cost(const ConvSpec& spec, const WeightTile& tile) {
  return amx_cost(spec, lanes::amx_kernels().gradient[tile.index]);
}

// Direct tiles, and the cheapest for each form of Winograd's algorithm and with AMX.
ConvTiles shortlist_for(const Direction& d, const ConvTiles& candidates) {
  ConvTiles direct = those(candidates, [](const ConvTile& tile) { return tile.method == ConvTile::Method::direct; });
  direct = shortlist(direct, [&](const ConvTile& tile) { return tile_cost(d.shape, tile); });
  ConvTiles chosen;
  for (int i = 0; i < lanes::kWinogradForms; ++i) {
    const WinogradForm form = winograd_form(i, Element::fp32);
    if (!worth_timing_winograd(d.winograd.shape, form)) continue;
    ConvTiles winograd = winograd_of(candidates, i);
    if (winograd.empty()) continue;
    const ConvShape products = winograd_products(d.winograd, form);
    winograd = shortlist(winograd, [&](const ConvTile& tile) { return tile_cost(products, tile); });
    winograd.resize(std::min(winograd.size(), kMostWinograd));
    chosen.insert(chosen.end(), winograd.begin(), winograd.end());
  }
  direct.resize(std::min(direct.size(), kMostTimed - chosen.size()));
  direct.insert(direct.end(), chosen.begin(), chosen.end());
  const ConvTiles amx = shortlist(amx_of(candidates), [&](const ConvTile& tile) { return amx_cost(d.shape, tile); });
  direct.insert(direct.end(), amx.begin(), amx.end());
  return direct;
}

template <class Tile, class Cost>
Tile cheapest_of(const std::vector<Tile>& candidates, Cost cost) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](const Tile& a, const Tile& b) { return cost(a) < cost(b); });
}

ConvTile cheapest(const ConvShape& s, const ConvTiles& candidates) {
  return cheapest_of(candidates, [&](const ConvTile& tile) { return tile_cost(s, tile); });
}

// What takes as long as transforming a weight and reading it in the products of all samples, which it may be too many for the
// caches to keep: this many multiply-adds (fitted to times of ResNets on an EPYC with AVX-512).
constexpr double kWeightCost = 60;

// The candidates with Winograd's algorithm in the form that costs the least; none if no form is worth timing, or if direct products
// cost less. `weight_cost`: of a weight, or of one for each frequency, in multiply-adds of an element.
template <class Tile>
std::vector<Tile> cheapest_winograd(const ConvSpec& spec, const ConvShape& s, Element element, double weight_cost,
                                    const std::vector<Tile>& candidates) {
  const auto batch = static_cast<double>(spec.batch);
  const double taps = static_cast<double>(spec.window.height) * static_cast<double>(spec.window.width);
  double least = taps * (batch * s.out_h * s.out_w + weight_cost);
  std::vector<Tile> best;
  for (int i = 0; i < lanes::kWinogradForms; ++i) {
    const WinogradForm form = winograd_form(i, element);
    const bool competes = element == Element::fp32 || form.pairs;
    const double cost = batch * winograd_work(s, form) + weight_cost * form.frequencies();
    const std::vector<Tile> tiles = winograd_of(candidates, i);
    if (!competes || !worth_timing_winograd(s, form) || tiles.empty() || cost >= least) continue;
    least = cost;
    best = tiles;
  }
  return best;
}

}  // namespace

ConvTiles amx_forward_tiles(const ConvSpec& spec) { return amx_tiles_for(forward_shape(spec), epilogue_of(spec)); }
ConvTiles amx_data_tiles(const ConvSpec& spec) {
  if (!spec.input_gradient) return {};
  return amx_tiles_for(narrowest_phase(spec), lanes::Epilogue::none);
}
WeightTiles amx_weights_tiles(const ConvSpec& spec) {
  const ConvShape s = forward_shape(spec);
  const bool slides = s.kernel_w == 3 && s.stride == 1 && s.in_channels % lanes::kAmxRows == 0;
  const lanes::AmxKernels& all = lanes::amx_kernels();
  WeightTiles usable;
  for (int i = 0; i < all.gradient_tiles; ++i) {
    if (all.gradient[i].window == 1 || slides) usable.push_back({.method = WeightTile::Method::amx, .index = i});
  }
  return usable;
}

bool lanes_conv_supported(const ConvSpec& spec) {
  return spec.window.plain() && !tiles_for(forward_shape(spec), spec.average_pool, false).empty();
}

ConvTiles lanes_forward_candidates(const ConvSpec& spec, bool with_amx) {
  return all_tiles_for(forward_direction(spec), with_amx);
}

ConvTiles lanes_data_candidates(const ConvSpec& spec, bool with_amx) {
  if (!spec.input_gradient) return {};
  return all_tiles_for(data_direction(spec), with_amx);
}

WeightTiles lanes_weights_candidates(const ConvSpec& spec, bool with_amx) {
  const lanes::GradientKernels& kernels = lanes::gradient_kernels();
  WeightTiles all;
  for (int i = 0; i < kernels.weights_tiles; ++i) all.push_back({.index = i});
  for (int i = 0; i < kernels.outer_tiles; ++i) all.push_back({.method = WeightTile::Method::outer, .index = i});
  for (int form = 0; form < lanes::kWinogradForms; ++form) {
    if (!Winograd::supports(forward_shape(spec), winograd_form(form, Element::fp32))) continue;
    for (int i = 0; i < kernels.outer_tiles; ++i) {
      all.push_back({.method = WeightTile::Method::winograd, .index = i, .form = form});
    }
  }
  if (with_amx) {
    const WeightTiles amx = amx_weights_tiles(spec);
    all.insert(all.end(), amx.begin(), amx.end());
  }
  return all;
}

ConvTiles lanes_forward_shortlist(const ConvSpec& spec, bool with_amx) {
  return shortlist_for(forward_direction(spec), lanes_forward_candidates(spec, with_amx));
}

ConvTiles lanes_data_shortlist(const ConvSpec& spec, bool with_amx) {
  if (!spec.input_gradient) return {};
  return shortlist_for(data_direction(spec), lanes_data_candidates(spec, with_amx));
}

WeightTiles lanes_weights_shortlist(const ConvSpec& spec, Element element, bool with_amx) {
  const auto cost = [&](const WeightTile& tile) { return weights_cost(spec, tile); };
  const WeightTiles candidates = lanes_weights_candidates(spec, with_amx);
  WeightTiles winograd;
  for (int i = 0; i < lanes::kWinogradForms; ++i) {
    // Fewer products saved are faster only where they are of pairs, or of windows with stride.
    const WinogradForm form = winograd_form(i, element);
    const bool competes = !lanes::winograd_kernels().forms[i].pairs || form.pairs || form.stride > 1;
    if (!competes || !worth_timing_winograd(forward_shape(spec), form)) continue;
    WeightTiles tiles = shortlist(winograd_of(candidates, i), cost);
    tiles.resize(std::min(tiles.size(), kMostWinograd));
    winograd.insert(winograd.end(), tiles.begin(), tiles.end());
  }
  WeightTiles all =
      shortlist(those(candidates, [](const WeightTile& tile) { return !is_amx(tile) && !is_winograd(tile); }), cost);
  // The rule's tile is where the search begins.
  const WeightTile rule = lanes_fixed_tiles(spec).weights;
  const bool has_rule = std::find(all.begin(), all.end(), rule) != all.end();
  all.resize(std::min(all.size(), kMostTimed - std::min(kMostTimed, winograd.size() + (has_rule ? 0 : 1))));
  if (std::find(all.begin(), all.end(), rule) == all.end()) all.push_back(rule);
  all.insert(all.end(), winograd.begin(), winograd.end());
  const WeightTiles amx = shortlist(amx_of(candidates), [&](const WeightTile& tile) { return amx_cost(spec, tile); });
  all.insert(all.end(), amx.begin(), amx.end());
  return all;
}

bool lanes_data_is_like_forward(const ConvSpec& spec) {
  if (!spec.input_gradient || spec.average_pool || spec.window.stride != 1) return false;
  const ConvShape forward = forward_shape(spec);
  const ConvShape data = narrowest_phase(spec);
  return forward.in_channels == data.in_channels && forward.out_channels == data.out_channels &&
         forward.out_w == data.out_w && forward.out_h == data.out_h;
}

LanesConvTiles lanes_fixed_tiles(const ConvSpec& spec, Element element) {
  LanesConvTiles tiles;
  const ConvShape shape = forward_shape(spec);
  tiles.forward = cheapest(shape, direct_tiles_for(shape, spec.average_pool, false));
  if (spec.input_gradient) {
    const ConvShape data = narrowest_phase(spec);
    tiles.data = cheapest(data, direct_tiles_for(data, false, true));
  }
  // In fp32 without the outer tiles, which are newer than runs that must be repeatable.
  const WeightTiles candidates = those(lanes_weights_candidates(spec), [&](const WeightTile& tile) {
    const bool outer = tile.method == WeightTile::Method::outer && element != Element::fp32;
    return tile.method == WeightTile::Method::direct || outer;
  });
  tiles.weights = cheapest_of(candidates, [&](const WeightTile& tile) { return weights_cost(spec, tile); });
  return tiles;
}

namespace {

// The tile of a direction that has `fixed` by the other rule.
ConvTile expected_tile(const ConvSpec& spec, Element element, const Direction& d, const ConvTile& fixed,
                       const ConvTiles& candidates) {
  const ConvTiles amx = amx_of(candidates);
  if (!amx.empty()) return cheapest_of(amx, [&](const ConvTile& tile) { return amx_cost(d.shape, tile); });
  const ConvTiles winograd = cheapest_winograd(spec, d.winograd.shape, element, kWeightCost, candidates);
  if (winograd.empty()) return fixed;
  const ConvShape products = winograd_products(d.winograd, winograd_form(winograd[0].form, element));
  return cheapest(products, winograd);
}

WeightTile expected_weights_tile(const ConvSpec& spec, Element element, const WeightTiles& candidates) {
  const WeightTiles amx = amx_of(candidates);
  if (!amx.empty()) return cheapest_of(amx, [&](const WeightTile& tile) { return amx_cost(spec, tile); });
  const auto cost = [&](const WeightTile& tile) { return weights_cost(spec, tile); };
  // Its sums are transformed once for all samples, and added to in the caches.
  const WeightTiles winograd = cheapest_winograd(spec, forward_shape(spec), element, 0, candidates);
  if (!winograd.empty()) return cheapest_of(winograd, cost);
  return cheapest_of(those(candidates, [](const WeightTile& tile) { return !is_amx(tile) && !is_winograd(tile); }),
                     cost);
}

}  // namespace

LanesConvTiles lanes_expected_tiles(const ConvSpec& spec, Element element, bool with_amx) {
  LanesConvTiles tiles = lanes_fixed_tiles(spec, element);
  tiles.forward =
      expected_tile(spec, element, forward_direction(spec), tiles.forward, lanes_forward_candidates(spec, with_amx));
  if (spec.input_gradient) {
    tiles.data = expected_tile(spec, element, data_direction(spec), *tiles.data, lanes_data_candidates(spec, with_amx));
  }
  tiles.weights = expected_weights_tile(spec, element, lanes_weights_candidates(spec, with_amx));
  return tiles;
}

}  // namespace ddp
