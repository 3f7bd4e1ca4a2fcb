#include "data/sources/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "data/sources/glyph_shapes.h"
#include "data/sources/memory_dataset.h"

namespace ddp {
namespace {

constexpr int kSide = static_cast<int>(kGlyphSide);
constexpr Shape kShape = {1, kGlyphSide, kGlyphSide};

// The variation between digits. Lengths are in pixels unless stated otherwise; every amount is drawn uniformly up to
// the bound given here.
constexpr float kPointJitter = 0.06F;  // of a stroke's points, in the units of glyph_shapes.h
constexpr float kElastic = 0.42F;      // of the displacement field's control points, in the same units
constexpr float kHeightLow = 6.8F;     // half the height of a digit
constexpr float kHeightHigh = 10.2F;
constexpr float kAspectLow = 0.75F;  // width over height, relative to the shapes'
constexpr float kAspectHigh = 1.25F;
constexpr float kTurn = 0.3F;  // tangent of the rotation: 17 degrees
constexpr float kSlant = 0.3F;
constexpr float kShift = 2.5F;
constexpr float kPenLow = 0.65F;  // half the width of a stroke
constexpr float kPenHigh = 1.6F;
constexpr float kPressure = 0.3F;  // change of the width from one end of a stroke to the other, relative
constexpr float kBlurLow = 1.0F;   // width of a stroke's edge
constexpr float kBlurHigh = 1.8F;
constexpr int kMostClutter = 2;  // marks that are not part of a digit
constexpr float kNoise = 0.2F;   // of full scale

using Point = GlyphPoint;

// For each pixel, its depth in the ink: the distance to the edge of the nearest stroke, negative outside.
using Depth = std::array<float, kGlyphPixels>;
constexpr float kFarOutside = -100;

float clamp_unit(float value) { return std::min(std::max(value, 0.0F), 1.0F); }

// Draws the segment from a to b with a round pen whose half width goes from pen_a to pen_b.
void draw_segment(Depth& depth, Point a, Point b, float pen_a, float pen_b) {
  const float reach = std::max(pen_a, pen_b) + kBlurHigh / 2;  // no ink farther out
  const auto first = [reach](float u, float v) { return std::max(static_cast<int>(std::min(u, v) - reach), 0); };
  const auto last = [reach](float u, float v) { return std::min(static_cast<int>(std::max(u, v) + reach), kSide - 1); };
  const int left = first(a.x, b.x) / 4 * 4;  // whole groups of four pixels
  const int right = last(a.x, b.x);
  const float ux = b.x - a.x;
  const float uy = b.y - a.y;
  const float inverse = 1 / (ux * ux + uy * uy + 1e-6F);
  for (int row = first(a.y, b.y); row <= last(a.y, b.y); ++row) {
    const float py = static_cast<float>(row) - a.y;
    for (int group = left; group <= right; group += 4) {
      float* const out = depth.data() + std::ptrdiff_t{row} * kSide + group;
      for (int lane = 0; lane < 4; ++lane) {
        const float px = static_cast<float>(group + lane) - a.x;
        const float along = clamp_unit((px * ux + py * uy) * inverse);
        const float dx = px - along * ux;
        const float dy = py - along * uy;
        const float inside = pen_a + along * (pen_b - pen_a) - std::sqrt(dx * dx + dy * dy);
        out[lane] = std::max(out[lane], inside);
      }
    }
  }
}

// A smooth random displacement of the plane around a digit: cubic B-splines over a grid of random vectors. It
// corresponds to the smoothed random field of Simard, Steinkraus, Platt: "Best Practices for Convolutional Neural
// Networks Applied to Visual Document Analysis", ICDAR 2003.
class ElasticField {
 public:
  explicit ElasticField(Random& random) {
    for (Point& vector : vectors_) vector = {random.uniform(-kElastic, kElastic), random.uniform(-kElastic, kElastic)};
  }

  Point displace(Point point) const {
    const auto [column, wx] = locate(point.x);
    const auto [row, wy] = locate(point.y);
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t j = 0; j < 4; ++j) {
        const Point& vector = vectors_[(row + i) * kGrid + column + j];
        point.x += wy[i] * wx[j] * vector.x;
        point.y += wy[i] * wx[j] * vector.y;
      }
    }
    return point;
  }

 private:
  static constexpr std::size_t kCells = 3;
  static constexpr std::size_t kGrid = kCells + 3;
  static constexpr float kExtent = 1.2F;  // the cells cover -1.2 .. 1.2 in both directions

  // The cell of a coordinate, and the weights of the four control points around it.
  static std::pair<std::size_t, std::array<float, 4>> locate(float coordinate) {
    const float scaled = (coordinate + kExtent) * (static_cast<float>(kCells) / (2 * kExtent));
    const float bounded = std::min(std::max(scaled, 0.0F), static_cast<float>(kCells) - 0.001F);
    const auto cell = static_cast<std::size_t>(bounded);
    const float t = bounded - static_cast<float>(cell);
    const float s = 1 - t;
    return {cell,
            {s * s * s / 6, (3 * t * t * t - 6 * t * t + 4) / 6, (3 * s * s * s - 6 * s * s + 4) / 6, t * t * t / 6}};
  }

  std::array<Point, kGrid * kGrid> vectors_;
};

// From the units of the shapes to pixels.
class Placement {
 public:
  explicit Placement(Random& random) {
    const float height = random.uniform(kHeightLow, kHeightHigh);
    const float width = height * random.uniform(kAspectLow, kAspectHigh);
    const float slant = random.uniform(-kSlant, kSlant);
    const float tangent = random.uniform(-kTurn, kTurn);
    const float cosine = 1 / std::sqrt(1 + tangent * tangent);
    const float sine = tangent * cosine;
    xx_ = cosine * width;
    xy_ = cosine * slant * width - sine * height;
    yx_ = sine * width;
    yy_ = sine * slant * width + cosine * height;
    // Small digits may lie farther from the centre.
    const float shift = kShift * (1.6F - height / kHeightHigh);
    constexpr float kCentre = static_cast<float>(kSide - 1) / 2;
    centre_ = {kCentre + random.uniform(-shift, shift), kCentre + random.uniform(-shift, shift)};
  }

  Point apply(Point point) const {
    return {centre_.x + xx_ * point.x + xy_ * point.y, centre_.y + yx_ * point.x + yy_ * point.y};
  }

 private:
  float xx_, xy_, yx_, yy_;
  Point centre_;
};

// The points of a stroke as a polyline.
class Polyline {
 public:
  explicit Polyline(const GlyphStroke& stroke) {
    const bool closed = stroke.kind == GlyphStroke::Kind::loop;
    const std::size_t pieces = closed ? stroke.count : stroke.count - 1;
    const std::size_t steps = stroke.kind == GlyphStroke::Kind::line ? kLineSteps : kCurveSteps;
    const auto at = [&stroke,
                     closed](std::size_t one_past) {  // the point before the requested one, so that no index is below 0
      if (closed) return stroke.points[(one_past + stroke.count - 1) % stroke.count];
      return stroke.points[std::min(std::max<std::size_t>(one_past, 1), stroke.count) - 1];
    };
    points_[size_++] = stroke.points[0];
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::array<Point, 4> around = {at(piece), at(piece + 1), at(piece + 2), at(piece + 3)};
      for (std::size_t step = 1; step <= steps; ++step) {
        const float t = static_cast<float>(step) / static_cast<float>(steps);
        points_[size_++] = stroke.kind == GlyphStroke::Kind::line ? between(around, t) : spline(around, t);
      }
    }
  }

  std::span<Point> points() { return std::span(points_).first(size_); }

 private:
  static constexpr std::size_t kLineSteps = 5;
  static constexpr std::size_t kCurveSteps = 4;

  static Point between(const std::array<Point, 4>& p, float t) {
    return {p[1].x + t * (p[2].x - p[1].x), p[1].y + t * (p[2].y - p[1].y)};
  }
  // The piece of a Catmull-Rom spline from p[1] to p[2].
  static Point spline(const std::array<Point, 4>& p, float t) {
    const auto interpolate = [t](float a, float b, float c, float d) {
      return b + 0.5F * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
    };
    return {interpolate(p[0].x, p[1].x, p[2].x, p[3].x), interpolate(p[0].y, p[1].y, p[2].y, p[3].y)};
  }

  std::array<Point, 1 + kLineSteps * std::tuple_size_v<decltype(GlyphStroke::points)>> points_;
  std::size_t size_ = 0;
};

void draw_digit(Depth& depth, int digit, Random& random) {
  const std::span<const GlyphStyle> styles = glyph_styles(digit);
  const GlyphStyle& style = styles[static_cast<std::size_t>(random.below(styles.size()))];
  const ElasticField field(random);
  const Placement placement(random);
  const float pen = random.uniform(kPenLow, kPenHigh);
  for (GlyphStroke stroke : std::span(style.strokes).first(style.count)) {
    for (Point& point : std::span(stroke.points).first(stroke.count)) {
      point.x += random.uniform(-kPointJitter, kPointJitter);
      point.y += random.uniform(-kPointJitter, kPointJitter);
    }
    Polyline line(stroke);
    const std::span<Point> points = line.points();
    for (Point& point : points) point = placement.apply(field.displace(point));
    const float pressure = pen * random.uniform(-kPressure, kPressure);
    const float slope = 2 * pressure / static_cast<float>(points.size() - 1);
    for (std::size_t i = 1; i < points.size(); ++i) {
      const float width = pen - pressure + slope * static_cast<float>(i);
      draw_segment(depth, points[i - 1], points[i], width - slope, width);
    }
  }
}

// Short marks anywhere in the image.
void draw_clutter(Depth& depth, Random& random) {
  const auto marks = static_cast<int>(random.below(kMostClutter + 1));
  for (int i = 0; i < marks; ++i) {
    const Point from = {random.uniform(0, kSide), random.uniform(0, kSide)};
    const Point to = {from.x + random.uniform(-6, 6), from.y + random.uniform(-6, 6)};
    const float pen = random.uniform(0.3F, 0.9F);
    draw_segment(depth, from, to, pen, pen);
  }
}

// The fraction of a pixel covered by ink, for an edge that is `blur` pixels wide.
float coverage(float depth, float inverse_blur) { return clamp_unit(0.5F + depth * inverse_blur); }

// The nearest of the 256 grey values; 0 is black and 1 white.
std::uint8_t to_byte(float value) {
  const float shifted = 255 * clamp_unit(value) + 0.5F;
  return static_cast<std::uint8_t>(static_cast<int>(shifted));
}

// Converts depths to grey values, with contrast, an uneven background and triangular noise.
void develop(const Depth& digit, const Depth& clutter, Random& random, std::span<std::uint8_t, kGlyphPixels> pixels) {
  constexpr float kMiddle = kSide / 2.0F;
  const float ground = random.uniform(0, 0.25F);
  const float ink = random.uniform(0.6F, 1.0F);
  const float faintness = random.uniform(0.3F, 0.9F);
  const float inverse_blur = 1 / random.uniform(kBlurLow, kBlurHigh);
  const float tilt_x = random.uniform(-0.1F, 0.1F) / kSide;
  const float tilt_y = random.uniform(-0.1F, 0.1F) / kSide;
  const float noise = random.uniform(0.02F, kNoise) / 255;
  std::array<float, kGlyphPixels> grains{};
  for (std::size_t i = 0; i < grains.size(); i += 2) {
    const std::uint32_t bits = random.next_u32();
    const auto grain = [bits](std::uint32_t shift) {
      const std::uint32_t sum = ((bits >> shift) & 0xFFU) + ((bits >> (shift + 8)) & 0xFFU);
      return static_cast<float>(static_cast<int>(sum) - 255);
    };
    grains[i] = grain(0);
    grains[i + 1] = grain(16);
  }
  for (std::size_t row = 0; row < kGlyphSide; ++row) {
    const float row_ground = ground + tilt_y * (static_cast<float>(row) - kMiddle);
    for (std::size_t column = 0; column < kGlyphSide; ++column) {
      const std::size_t i = row * kGlyphSide + column;
      const float cover = std::max(coverage(digit[i], inverse_blur), faintness * coverage(clutter[i], inverse_blur));
      const float below = row_ground + tilt_x * (static_cast<float>(column) - kMiddle);
      const float value = below + (ink - below) * cover + noise * grains[i];
      pixels[i] = to_byte(value);
    }
  }
}

// Each use has its own random stream.
enum Substream : std::uint32_t { kTrainImage, kTestImage, kTrainLabel, kTestLabel };

}  // namespace

int glyph_label(std::uint64_t seed, Split split, std::int64_t index) {
  std::array<std::uint32_t, 10> digits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Random random(seed, static_cast<std::uint64_t>(index / 10), split == Split::train ? kTrainLabel : kTestLabel);
  shuffle(digits, random);
  return static_cast<int>(digits[static_cast<std::size_t>(index % 10)]);
}

void draw_glyph(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kGlyphPixels> pixels) {
  Random random(seed, static_cast<std::uint64_t>(index), split == Split::train ? kTrainImage : kTestImage);
  Depth digit;
  digit.fill(kFarOutside);
  draw_digit(digit, glyph_label(seed, split, index), random);
  Depth clutter;
  clutter.fill(kFarOutside);
  draw_clutter(clutter, random);
  develop(digit, clutter, random, pixels);
}

std::unique_ptr<Dataset> make_glyphs(Split split, std::int64_t limit, int threads, std::uint64_t seed) {
  const std::int64_t all = split == Split::train ? kGlyphTrainSize : kGlyphTestSize;
  const std::int64_t size = limit > 0 ? std::min(limit, all) : all;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(size * kGlyphPixels));
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(size));
  const auto draw = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t index = begin; index < end; ++index) {
      const auto offset = static_cast<std::size_t>(index * kGlyphPixels);
      draw_glyph(seed, split, index, std::span(pixels).subspan(offset).first<kGlyphPixels>());
      labels[static_cast<std::size_t>(index)] = static_cast<std::uint8_t>(glyph_label(seed, split, index));
    }
  };
  const int parts = std::max(threads, 1);
  run_parts(parts, [&](int part) { draw(size * part / parts, size * (part + 1) / parts); });
  return std::make_unique<MemoryDataset>("glyphs", kShape, 10, std::move(pixels), std::move(labels));
}

}  // namespace ddp
