// Names of files and classes, whose bytes may be anything: shown, stored and compared as UTF-8 without loss.
//
//   escape_name("caf\xE9");                        // R"(caf\xE9)": Latin-1, not UTF-8
//   unescape_bytes(escape_name(name)) == name;     // for all bytes
//   same_form("e\u0301t\u00E9") == same_form("\u00E9te\u0301");   // the same name as macOS and others write it
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp {

// The bytes of the character that `text` begins with; 0 if it does not begin with one in valid UTF-8. Surrogates, overlong
// forms and what lies behind U+10FFFF are not valid.
std::size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);

// Replaces every byte that is not UTF-8 by \xHH, and a backslash by \x5C where it would read as such an escape. Two texts
// have the same result only if they are equal; text in UTF-8 mostly remains as it is.
std::string escape_bytes(std::string_view text);
// The same, and control characters likewise, for names in messages.
std::string escape_name(std::string_view name);
// The text that escape_bytes() or escape_name() was called with.
std::string unescape_bytes(std::string_view text);

// The same for names that differ only in how Unicode writes their accents, syllables and marks: composed (NFC), decomposed
// (NFD) or mixed. Not for display.
std::string same_form(std::string_view name);

}  // namespace ddp
