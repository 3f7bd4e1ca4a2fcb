#include "data/sources/glyph_shapes.h"

#include "base/error.h"

namespace ddp {
namespace {

using Points = std::initializer_list<GlyphPoint>;

constexpr GlyphStroke line(Points points) { return {GlyphStroke::Kind::line, points}; }
constexpr GlyphStroke curve(Points points) { return {GlyphStroke::Kind::curve, points}; }
constexpr GlyphStroke loop(Points points) { return {GlyphStroke::Kind::loop, points}; }

// An upright ellipse as a loop through eight points.
constexpr GlyphStroke ellipse(float x, float y, float rx, float ry) {
  constexpr float kDiagonal = 0.70710678F;
  const float dx = rx * kDiagonal;
  const float dy = ry * kDiagonal;
  return loop({{x, y - ry},
               {x + dx, y - dy},
               {x + rx, y},
               {x + dx, y + dy},
               {x, y + ry},
               {x - dx, y + dy},
               {x - rx, y},
               {x - dx, y - dy}});
}

constexpr std::array kZero = {
    GlyphStyle{ellipse(0, 0, 0.58F, 1)},
    GlyphStyle{ellipse(0, 0, 0.42F, 1)},
    // Not quite closed, the end running past the start.
    GlyphStyle{curve({{.15F, -.95F},
                      {-.35F, -.75F},
                      {-.58F, 0},
                      {-.38F, .75F},
                      {0, 1},
                      {.4F, .75F},
                      {.58F, 0},
                      {.35F, -.75F},
                      {-.1F, -.85F}})},
    GlyphStyle{loop({{.1F, -1}, {.5F, -.6F}, {.48F, .3F}, {.1F, .95F}, {-.35F, .85F}, {-.55F, .1F}, {-.35F, -.7F}})},
};

constexpr std::array kOne = {
    GlyphStyle{line({{0, -1}, {0, 1}})},
    GlyphStyle{line({{-.35F, -.55F}, {.08F, -1}, {.08F, 1}})},
    GlyphStyle{line({{-.32F, -.65F}, {.05F, -1}, {.05F, 1}}), line({{-.38F, 1}, {.45F, 1}})},
    GlyphStyle{curve({{.05F, -1}, {.02F, -.3F}, {-.03F, .4F}, {0, 1}})},
};

constexpr std::array kTwo = {
    GlyphStyle{
        curve({{-.5F, -.6F}, {-.3F, -.92F}, {.1F, -1}, {.46F, -.7F}, {.36F, -.2F}, {-.05F, .35F}, {-.52F, .95F}}),
        line({{-.52F, .95F}, {.56F, .95F}})},
    // A small loop at the foot.
    GlyphStyle{curve({{-.48F, -.7F},
                      {-.05F, -1},
                      {.42F, -.68F},
                      {.28F, -.05F},
                      {-.2F, .6F},
                      {-.48F, .9F},
                      {-.52F, .65F},
                      {-.2F, .65F},
                      {.15F, .92F},
                      {.58F, .85F}})},
    GlyphStyle{curve({{-.45F, -.85F}, {.05F, -.98F}, {.45F, -.6F}, {.1F, .2F}, {-.5F, .98F}}),
               curve({{-.5F, .98F}, {-.1F, .85F}, {.2F, .98F}, {.55F, .85F}})},
    GlyphStyle{curve({{-.5F, -.45F}, {-.35F, -.9F}, {.05F, -1}, {.5F, -.6F}, {.3F, -.05F}, {-.3F, .35F}, {-.5F, 1}}),
               line({{-.5F, 1}, {.55F, 1}})},
};

constexpr std::array kThree = {
    GlyphStyle{curve({{-.46F, -.75F}, {-.05F, -1}, {.4F, -.7F}, {.28F, -.22F}, {-.12F, -.05F}}),
               curve({{-.12F, -.05F}, {.36F, .12F}, {.52F, .52F}, {.15F, .95F}, {-.5F, .76F}})},
    // A flat top.
    GlyphStyle{line({{-.46F, -.95F}, {.45F, -.95F}, {-.05F, -.2F}}),
               curve({{-.05F, -.2F}, {.38F, -.02F}, {.5F, .5F}, {.1F, .96F}, {-.5F, .75F}})},
    GlyphStyle{curve({{-.4F, -.95F}, {.1F, -.98F}, {.4F, -.6F}, {.2F, -.15F}, {-.3F, -.02F}}),
               curve({{-.3F, -.02F}, {.3F, .02F}, {.54F, .45F}, {.25F, .92F}, {-.4F, .98F}})},
    // In one go, with a small loop at the waist.
    GlyphStyle{curve({{-.45F, -.8F},
                      {0, -1},
                      {.4F, -.7F},
                      {.15F, -.2F},
                      {-.15F, -.05F},
                      {-.05F, .05F},
                      {.1F, -.08F},
                      {.45F, .2F},
                      {.45F, .7F},
                      {0, 1},
                      {-.48F, .8F}})},
};

constexpr std::array kFour = {
    GlyphStyle{line({{-.3F, -.95F}, {-.52F, .2F}, {.55F, .2F}}), line({{.28F, -.5F}, {.24F, 1}})},
    // Closed at the top.
    GlyphStyle{line({{.22F, 1}, {.22F, -1}, {-.56F, .35F}, {.58F, .35F}})},
    GlyphStyle{curve({{-.42F, -.9F}, {-.48F, -.3F}, {-.3F, .02F}, {.1F, 0}, {.4F, -.1F}}),
               line({{.42F, -.95F}, {.36F, 1}})},
    GlyphStyle{line({{.1F, -1}, {-.55F, .3F}, {.55F, .3F}}), line({{.25F, -.25F}, {.25F, 1}})},
};

constexpr std::array kFive = {
    GlyphStyle{line({{.5F, -.95F}, {-.36F, -.95F}, {-.43F, -.12F}}),
               curve({{-.43F, -.12F}, {.08F, -.28F}, {.52F, .15F}, {.36F, .8F}, {-.1F, 1}, {-.5F, .8F}})},
    // In one go, close to an S.
    GlyphStyle{curve({{.5F, -.85F},
                      {.1F, -.97F},
                      {-.32F, -.8F},
                      {-.38F, -.35F},
                      {.05F, -.15F},
                      {.46F, .2F},
                      {.38F, .78F},
                      {-.1F, 1},
                      {-.5F, .8F}})},
    // The bar as a stroke of its own, a little apart.
    GlyphStyle{line({{-.3F, -.9F}, {-.4F, -.1F}}),
               curve({{-.4F, -.1F}, {.1F, -.2F}, {.48F, .25F}, {.3F, .85F}, {-.48F, .95F}}),
               line({{-.22F, -.9F}, {.52F, -1}})},
    GlyphStyle{line({{.42F, -1}, {-.4F, -1}, {-.4F, -.05F}, {.1F, -.1F}}),
               curve({{.1F, -.1F}, {.48F, .2F}, {.46F, .7F}, {.1F, .98F}, {-.48F, .98F}})},
};

constexpr std::array kSix = {
    GlyphStyle{curve({{.4F, -.92F},
                      {-.1F, -.62F},
                      {-.48F, .1F},
                      {-.4F, .75F},
                      {0, 1},
                      {.45F, .7F},
                      {.4F, .2F},
                      {0, .03F},
                      {-.42F, .35F}})},
    GlyphStyle{ellipse(0, .48F, .46F, .52F), curve({{.25F, -1}, {-.2F, -.45F}, {-.46F, .48F}})},
    GlyphStyle{ellipse(.02F, .42F, .45F, .55F), curve({{.45F, -.85F}, {.05F, -1}, {-.38F, -.5F}, {-.43F, .42F}})},
    GlyphStyle{curve({{-.15F, -1},
                      {-.42F, -.3F},
                      {-.48F, .45F},
                      {-.15F, .98F},
                      {.35F, .85F},
                      {.42F, .4F},
                      {.05F, .2F},
                      {-.4F, .6F}})},
};

constexpr std::array kSeven = {
    GlyphStyle{line({{-.52F, -.95F}, {.5F, -.95F}, {-.1F, 1}})},
    // Crossed.
    GlyphStyle{line({{-.52F, -.95F}, {.5F, -.95F}, {-.15F, 1}}), line({{-.25F, .02F}, {.42F, -.02F}})},
    GlyphStyle{line({{-.5F, -.65F}, {-.5F, -.95F}, {.5F, -.95F}}), curve({{.5F, -.95F}, {.15F, -.1F}, {0, 1}})},
    GlyphStyle{curve({{-.55F, -.8F}, {-.2F, -.95F}, {.15F, -.85F}, {.52F, -.95F}}),
               curve({{.52F, -.95F}, {.2F, -.3F}, {-.05F, .3F}, {-.2F, 1}})},
};

constexpr std::array kEight = {
    // In one go, crossing at the waist.
    GlyphStyle{loop({{0, -1},
                     {.4F, -.72F},
                     {.28F, -.32F},
                     {-.28F, .18F},
                     {-.48F, .6F},
                     {0, 1},
                     {.48F, .6F},
                     {.28F, .18F},
                     {-.28F, -.32F},
                     {-.4F, -.72F}})},
    GlyphStyle{ellipse(0, -.54F, .38F, .46F), ellipse(0, .46F, .48F, .54F)},
    GlyphStyle{ellipse(.03F, -.5F, .42F, .46F), ellipse(-.03F, .48F, .44F, .5F)},
    // Begun at the top right and not quite closed.
    GlyphStyle{curve({{.42F, -.8F},
                      {-.05F, -1},
                      {-.4F, -.65F},
                      {0, -.1F},
                      {.46F, .45F},
                      {.2F, .95F},
                      {-.3F, .92F},
                      {-.45F, .45F},
                      {.05F, -.1F},
                      {.45F, -.7F}})},
};

constexpr std::array kNine = {
    GlyphStyle{ellipse(0, -.48F, .46F, .5F), line({{.46F, -.48F}, {.3F, 1}})},
    GlyphStyle{ellipse(-.02F, -.44F, .45F, .54F), curve({{.43F, -.44F}, {.4F, .5F}, {.05F, 1}, {-.42F, .85F}})},
    GlyphStyle{curve(
        {{.42F, -.6F}, {.05F, -1}, {-.42F, -.7F}, {-.36F, -.2F}, {.05F, -.08F}, {.42F, -.55F}, {.44F, 0}, {.3F, 1}})},
    GlyphStyle{ellipse(-.04F, -.5F, .42F, .46F), line({{.4F, -.95F}, {.4F, 1}})},
};

}  // namespace

std::span<const GlyphStyle> glyph_styles(int digit) {
  static constexpr std::array<std::span<const GlyphStyle>, 10> kDigits = {kZero, kOne, kTwo,   kThree, kFour,
                                                                          kFive, kSix, kSeven, kEight, kNine};
  DDP_ASSERT(digit >= 0 && digit <= 9);
  return kDigits[static_cast<std::size_t>(digit)];
}

}  // namespace ddp
