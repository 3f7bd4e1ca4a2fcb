// The digits as strokes: for each digit several styles, as people and printers draw them.
//
// A digit fills the box -0.6 <= x <= 0.6, -1 <= y <= 1, with y pointing down.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace ddp {

struct GlyphPoint {
  float x = 0;
  float y = 0;
};

struct GlyphStroke {
  enum class Kind {
    line,   // straight from point to point
    curve,  // smoothly through the points
    loop,   // smoothly through the points and back to the first
  };

  constexpr GlyphStroke() = default;
  constexpr GlyphStroke(Kind stroke_kind, std::initializer_list<GlyphPoint> through) : kind(stroke_kind) {
    for (const GlyphPoint point : through) points.at(count++) = point;
  }

  Kind kind = Kind::line;
  std::size_t count = 0;
  std::array<GlyphPoint, 12> points{};
};

struct GlyphStyle {
  constexpr GlyphStyle() = default;
  constexpr GlyphStyle(std::initializer_list<GlyphStroke> drawn) {
    for (const GlyphStroke& stroke : drawn) strokes.at(count++) = stroke;
  }

  std::size_t count = 0;
  std::array<GlyphStroke, 3> strokes{};
};

// The styles of a digit, 0 <= digit <= 9; at least one.
std::span<const GlyphStyle> glyph_styles(int digit);

}  // namespace ddp
