// Which register tiles can compute a convolution in lanes16, the choice among them by a rule, and their names.
#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "backend/cpu/amx_kernels.h"
#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/lanes_winograd.h"
#include "backend/cpu/lanes_winograd_gradient.h"
#include "base/error.h"

namespace ddp {
namespace {

using lanes::ConvShape;

std::vector<int> tiles_for(const ConvShape& s, bool pooled, bool single_row) {
  const lanes::Kernels& all = lanes::kernels();
  std::vector<int> usable;
  for (int i = 0; i < all.forward_tiles; ++i) {
    const lanes::ForwardTile& tile = all.forward[i];
    if (forward_kernel(tile, s.stride, pooled) == nullptr) continue;
    if (tile.columns > s.out_w || tile.rows > s.out_h || (single_row && tile.rows != 1)) continue;
    usable.push_back(i);
  }
  return usable;
}

// Of a forward tile and of an outer tile that computes the products of Winograd's algorithm; forms are those of the table.
const lanes::WinogradTable& winograd_of(int tile) {
  const lanes::Kernels& all = lanes::kernels();
  return all.winograd[tile / all.forward_tiles - 1];
}
const lanes::WinogradTable& winograd_weights_of(int tile) {
  const lanes::Kernels& all = lanes::kernels();
  return all.winograd[(tile - all.weights_tiles) / all.outer_tiles - 1];
}

WinogradForm form_of(const lanes::WinogradTable& table, Element element) {
  return {.size = table.size,
          .window = table.window,
          .stride = table.stride,
          .pairs = element == Element::bf16 && table.pairs};
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

// The first tiles with AMX, which follow all others.
int first_amx() {
  const lanes::Kernels& all = lanes::kernels();
  return all.forward_tiles * (1 + lanes::kWinogradForms);
}
int first_amx_weights() {
  const lanes::Kernels& all = lanes::kernels();
  return all.weights_tiles + all.outer_tiles * (1 + lanes::kWinogradForms);
}

std::vector<int> amx_tiles_for(const ConvShape& s, lanes::Epilogue last) {
  const lanes::AmxKernels& all = lanes::amx_kernels();
  std::vector<int> usable;
  for (int i = 0; i < all.forward_tiles; ++i) {
    const lanes::AmxForwardTile& tile = all.forward[i];
    const bool fits = tile.columns <= s.out_w && tile.rows <= s.out_h;
    if (fits && tile.kernel[static_cast<int>(last)] != nullptr) usable.push_back(first_amx() + i);
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

// The tiles as above, then those that can compute the products of Winograd's algorithm, then those with AMX.
std::vector<int> all_tiles_for(const Direction& d, bool with_amx) {
  const lanes::Kernels& all = lanes::kernels();
  std::vector<int> usable = tiles_for(d.shape, d.last == lanes::Epilogue::relu_pool, d.single_row);
  for (int form = 0; form < lanes::kWinogradForms; ++form) {
    const WinogradForm tiles = form_of(all.winograd[form], Element::fp32);
    if (!Winograd::supports(d.winograd.shape, tiles)) continue;
    for (const int i : tiles_for(winograd_products(d.winograd, tiles), false, true)) {
      usable.push_back((1 + form) * all.forward_tiles + i);
    }
  }
  if (with_amx) {
    const std::vector<int> amx = amx_tiles_for(d.shape, d.last);
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

// The same for the weight gradient, where reading many planes at once is expensive. Outer tiles follow the others.
double weights_cost(const ConvSpec& spec, int index) {
  const lanes::Kernels& all = lanes::kernels();
  const std::int64_t kernel = spec.window.height * spec.window.width;
  const std::int64_t in = spec.input.channels / spec.groups;
  const std::int64_t out = spec.output_channels / spec.groups;
  if (index >= all.weights_tiles) {
    const lanes::OuterTile& tile = outer_tile(index);
    const auto work = static_cast<double>(
        kernel * (is_winograd_weights(index) ? WinogradGradient::work(forward_shape(spec), tile)
                                             : round_up(out, tile.rows) * round_up(in, kLanes * tile.vectors)));
    return work * (1.1 + 4.0 / (tile.rows * tile.vectors));
  }
  const lanes::WeightsTile& tile = all.weights[index];
  const auto work = static_cast<double>(round_up(out, tile.channels) * round_up(in * kernel, tile.taps));
  return work * (1.0 + 4.0 / (tile.channels * tile.taps) + std::max(tile.channels, tile.taps) / 20.0);
}

// The cost model errs by less than this, so that what it finds more expensive is not timed; at most so many are.
constexpr double kWorthTiming = 1.3;
constexpr std::size_t kMostTimed = 5;
// Of those, with Winograd's algorithm in tiles of one size.
constexpr std::size_t kMostWinograd = 2;

template <class Cost>
std::vector<int> shortlist(std::vector<int> candidates, Cost cost) {
  std::stable_sort(candidates.begin(), candidates.end(), [&](int a, int b) { return cost(a) < cost(b); });
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

// Direct tiles, and the cheapest for each form of Winograd's algorithm and with AMX.
std::vector<int> shortlist_for(const Direction& d, const std::vector<int>& candidates) {
  const lanes::Kernels& all = lanes::kernels();
  std::vector<int> direct;
  std::vector<int> amx;
  for (const int i : candidates) {
    if (is_amx(i)) amx.push_back(i);
    if (!is_amx(i) && !is_winograd(i)) direct.push_back(i);
  }
  direct = shortlist(direct, [&](int i) { return tile_cost(d.shape, all.forward[i]); });
  std::vector<int> chosen;
  for (const lanes::WinogradTable& table : all.winograd) {
    const WinogradForm form = form_of(table, Element::fp32);
    if (!worth_timing_winograd(d.winograd.shape, form)) continue;
    std::vector<int> winograd;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(winograd),
                 [&](int i) { return is_winograd(i) && &winograd_of(i) == &table; });
    if (winograd.empty()) continue;
    const ConvShape products = winograd_products(d.winograd, form);
    winograd = shortlist(winograd, [&](int i) { return tile_cost(products, all.forward[i % all.forward_tiles]); });
    winograd.resize(std::min(winograd.size(), kMostWinograd));
    chosen.insert(chosen.end(), winograd.begin(), winograd.end());
  }
  direct.resize(std::min(direct.size(), kMostTimed - chosen.size()));
  direct.insert(direct.end(), chosen.begin(), chosen.end());
  amx = shortlist(amx, [&](int i) { return amx_cost(d.shape, amx_tile(i)); });
  direct.insert(direct.end(), amx.begin(), amx.end());
  return direct;
}

template <class Cost>
int cheapest_of(const std::vector<int>& candidates, Cost cost) {
  return *std::min_element(candidates.begin(), candidates.end(), [&](int a, int b) { return cost(a) < cost(b); });
}

int cheapest(const ConvShape& s, const std::vector<int>& candidates) {
  return cheapest_of(candidates, [&](int i) { return tile_cost(s, lanes::kernels().forward[i]); });
}

// What takes as long as transforming a weight and reading it in the products of all samples, which it may be too many for the
// caches to keep: this many multiply-adds (fitted to times of ResNets on an EPYC with AVX-512).
constexpr double kWeightCost = 60;

// The candidates with Winograd's algorithm in the form that costs the least; none if no form is worth timing, or if direct products
// cost less. `weight_cost`: of a weight, or of one for each frequency, in multiply-adds of an element.
std::vector<int> cheapest_winograd(const ConvSpec& spec, const ConvShape& s, Element element, double weight_cost,
                                   const std::vector<int>& candidates, bool (*with_winograd)(int),
                                   const lanes::WinogradTable& (*table_of)(int)) {
  const auto batch = static_cast<double>(spec.batch);
  const double taps = static_cast<double>(spec.window.height) * static_cast<double>(spec.window.width);
  double least = taps * (batch * s.out_h * s.out_w + weight_cost);
  const lanes::WinogradTable* best = nullptr;
  for (const lanes::WinogradTable& table : lanes::kernels().winograd) {
    const WinogradForm form = form_of(table, element);
    const bool competes = element == Element::fp32 || form.pairs;
    const double cost = batch * winograd_work(s, form) + weight_cost * form.frequencies();
    const bool has_tiles = std::any_of(candidates.begin(), candidates.end(),
                                       [&](int i) { return with_winograd(i) && &table_of(i) == &table; });
    if (!competes || !worth_timing_winograd(s, form) || !has_tiles || cost >= least) continue;
    least = cost;
    best = &table;
  }
  std::vector<int> tiles;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(tiles),
               [&](int i) { return best != nullptr && with_winograd(i) && &table_of(i) == best; });
  return tiles;
}

}  // namespace

bool is_winograd(int tile) { return tile >= lanes::kernels().forward_tiles && !is_amx(tile); }

bool is_amx(int tile) { return tile >= first_amx(); }
bool is_amx_weights(int tile) { return tile >= first_amx_weights(); }

const lanes::AmxForwardTile& amx_tile(int tile) { return lanes::amx_kernels().forward[tile - first_amx()]; }
const lanes::AmxGradientTile& amx_gradient_tile(int tile) {
  return lanes::amx_kernels().gradient[tile - first_amx_weights()];
}

std::vector<int> amx_forward_tiles(const ConvSpec& spec) {
  return amx_tiles_for(forward_shape(spec), epilogue_of(spec));
}
std::vector<int> amx_data_tiles(const ConvSpec& spec) {
  if (!spec.input_gradient) return {};
  return amx_tiles_for(narrowest_phase(spec), lanes::Epilogue::none);
}
std::vector<int> amx_weights_tiles(const ConvSpec& spec) {
  const ConvShape s = forward_shape(spec);
  const bool slides = s.kernel_w == 3 && s.stride == 1 && s.in_channels % lanes::kAmxRows == 0;
  std::vector<int> usable;
  for (int i = 0; i < lanes::amx_kernels().gradient_tiles; ++i) {
    const int tile = first_amx_weights() + i;
    if (amx_gradient_tile(tile).window == 1 || slides) usable.push_back(tile);
  }
  return usable;
}

WinogradForm winograd_form(int tile, Element element) { return form_of(winograd_of(tile), element); }
WinogradForm winograd_weights_form(int tile, Element element) { return form_of(winograd_weights_of(tile), element); }

bool is_winograd_weights(int tile) {
  return tile >= lanes::kernels().weights_tiles + lanes::kernels().outer_tiles && !is_amx_weights(tile);
}

const lanes::OuterTile& outer_tile(int tile) {
  const lanes::Kernels& all = lanes::kernels();
  return all.outer[(tile - all.weights_tiles) % all.outer_tiles];
}

const lanes::ForwardTile& forward_tile(int tile, Element element) {
  const lanes::Kernels& all = lanes::kernels();
  const bool pairs = is_winograd(tile) ? winograd_form(tile, element).pairs : element == Element::bf16;
  return (pairs ? all.pair_forward : all.forward)[tile % all.forward_tiles];
}

lanes::Epilogue epilogue_of(const ConvSpec& spec) {
  if (spec.average_pool) return lanes::Epilogue::relu_pool;
  return spec.relu ? lanes::Epilogue::relu : lanes::Epilogue::none;
}

lanes::ConvForward forward_kernel(const lanes::ForwardTile& tile, int stride, bool pooled) {
  if (pooled) return stride == 1 ? tile.pooled : nullptr;
  return tile.direct[std::min(stride, 3) - 1];
}

bool lanes_conv_supported(const ConvSpec& spec) {
  return spec.window.plain() && !tiles_for(forward_shape(spec), spec.average_pool, false).empty();
}

std::vector<int> lanes_forward_candidates(const ConvSpec& spec, bool with_amx) {
  return all_tiles_for(forward_direction(spec), with_amx);
}

std::vector<int> lanes_data_candidates(const ConvSpec& spec, bool with_amx) {
  if (!spec.input_gradient) return {};
  return all_tiles_for(data_direction(spec), with_amx);
}

std::vector<int> lanes_weights_candidates(const ConvSpec& spec, bool with_amx) {
  const lanes::Kernels& kernels = lanes::kernels();
  std::vector<int> all(static_cast<std::size_t>(kernels.weights_tiles + kernels.outer_tiles));
  std::iota(all.begin(), all.end(), 0);
  for (int form = 0; form < lanes::kWinogradForms; ++form) {
    if (!Winograd::supports(forward_shape(spec), form_of(kernels.winograd[form], Element::fp32))) continue;
    const int first = kernels.weights_tiles + (1 + form) * kernels.outer_tiles;
    for (int i = 0; i < kernels.outer_tiles; ++i) all.push_back(first + i);
  }
  if (with_amx) {
    const std::vector<int> amx = amx_weights_tiles(spec);
    all.insert(all.end(), amx.begin(), amx.end());
  }
  return all;
}

std::vector<int> lanes_forward_shortlist(const ConvSpec& spec, bool with_amx) {
  return shortlist_for(forward_direction(spec), lanes_forward_candidates(spec, with_amx));
}

std::vector<int> lanes_data_shortlist(const ConvSpec& spec, bool with_amx) {
  if (!spec.input_gradient) return {};
  return shortlist_for(data_direction(spec), lanes_data_candidates(spec, with_amx));
}

std::vector<int> lanes_weights_shortlist(const ConvSpec& spec, Element element, bool with_amx) {
  const auto cost = [&](int i) { return weights_cost(spec, i); };
  std::vector<int> direct;
  std::vector<int> winograd;
  std::vector<int> amx;
  for (const int i : lanes_weights_candidates(spec, with_amx)) {
    if (is_amx_weights(i)) amx.push_back(i);
    if (!is_amx_weights(i) && !is_winograd_weights(i)) direct.push_back(i);
  }
  for (const lanes::WinogradTable& table : lanes::kernels().winograd) {
    // Fewer products saved are faster only where they are of pairs, or of windows with stride.
    const WinogradForm form = form_of(table, element);
    const bool competes = !table.pairs || form.pairs || table.stride > 1;
    if (!competes || !worth_timing_winograd(forward_shape(spec), form)) continue;
    std::vector<int> tiles;
    for (const int i : lanes_weights_candidates(spec)) {
      if (is_winograd_weights(i) && &winograd_weights_of(i) == &table) tiles.push_back(i);
    }
    tiles = shortlist(tiles, cost);
    tiles.resize(std::min(tiles.size(), kMostWinograd));
    winograd.insert(winograd.end(), tiles.begin(), tiles.end());
  }
  std::vector<int> all = shortlist(direct, cost);
  // The rule's tile is where the search begins.
  const int rule = lanes_fixed_tiles(spec).weights;
  const bool has_rule = std::find(all.begin(), all.end(), rule) != all.end();
  all.resize(std::min(all.size(), kMostTimed - std::min(kMostTimed, winograd.size() + (has_rule ? 0 : 1))));
  if (std::find(all.begin(), all.end(), rule) == all.end()) all.push_back(rule);
  all.insert(all.end(), winograd.begin(), winograd.end());
  amx = shortlist(amx, [&](int i) { return amx_cost(spec, amx_gradient_tile(i)); });
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
  tiles.forward = cheapest(shape, tiles_for(shape, spec.average_pool, false));
  if (spec.input_gradient) {
    const ConvShape data = narrowest_phase(spec);
    tiles.data = cheapest(data, tiles_for(data, false, true));
  }
  // In fp32 without the outer tiles, which are newer than runs that must be repeatable.
  std::vector<int> candidates = lanes_weights_candidates(spec);
  const std::int64_t outer = element == Element::fp32 ? 0 : lanes::kernels().outer_tiles;
  candidates.resize(static_cast<std::size_t>(lanes::kernels().weights_tiles + outer));
  tiles.weights = cheapest_of(candidates, [&](int i) { return weights_cost(spec, i); });
  return tiles;
}

// Of a direction that has `fixed` by the other rule.
int expected_tile(const ConvSpec& spec, Element element, const Direction& d, int fixed,
                  const std::vector<int>& candidates) {
  std::vector<int> amx;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(amx), is_amx);
  if (!amx.empty()) return cheapest_of(amx, [&](int i) { return amx_cost(d.shape, amx_tile(i)); });
  const std::vector<int> winograd =
      cheapest_winograd(spec, d.winograd.shape, element, kWeightCost, candidates, is_winograd, winograd_of);
  if (winograd.empty()) return fixed;
  const ConvShape products = winograd_products(d.winograd, winograd_form(winograd[0], element));
  const lanes::Kernels& all = lanes::kernels();
  return cheapest_of(winograd, [&](int i) { return tile_cost(products, all.forward[i % all.forward_tiles]); });
}

int expected_weights_tile(const ConvSpec& spec, Element element, const std::vector<int>& candidates) {
  std::vector<int> amx;
  std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(amx), is_amx_weights);
  if (!amx.empty()) return cheapest_of(amx, [&](int i) { return amx_cost(spec, amx_gradient_tile(i)); });
  const auto cost = [&](int i) { return weights_cost(spec, i); };
  // Its sums are transformed once for all samples, and added to in the caches.
  const std::vector<int> winograd =
      cheapest_winograd(spec, forward_shape(spec), element, 0, candidates, is_winograd_weights, winograd_weights_of);
  if (!winograd.empty()) return cheapest_of(winograd, cost);
  const std::int64_t direct = lanes::kernels().weights_tiles + std::int64_t{lanes::kernels().outer_tiles};
  return cheapest_of({candidates.begin(), candidates.begin() + direct}, cost);
}

LanesConvTiles lanes_expected_tiles(const ConvSpec& spec, Element element, bool with_amx) {
  LanesConvTiles tiles = lanes_fixed_tiles(spec, element);
  tiles.forward =
      expected_tile(spec, element, forward_direction(spec), tiles.forward, lanes_forward_candidates(spec, with_amx));
  if (spec.input_gradient) {
    tiles.data = expected_tile(spec, element, data_direction(spec), tiles.data, lanes_data_candidates(spec, with_amx));
  }
  tiles.weights = expected_weights_tile(spec, element, lanes_weights_candidates(spec, with_amx));
  return tiles;
}

}  // namespace ddp
