// SPDX-License-Identifier: Apache-2.0
#include "inspect/font.h"

#include <cairn/error.h>
#include <cairo-ft.h>
#include <ft2build.h>
#include FT_FREETYPE_H

// The file itself, put here by the assembler (CAIRN_FONT is its path at build time).
asm(R"(
  .pushsection .rodata
  .balign 16
  .global cairn_font_begin, cairn_font_end
  .hidden cairn_font_begin, cairn_font_end
cairn_font_begin:
)"
    "  .incbin \"" CAIRN_FONT
    "\"\n"
    R"(
cairn_font_end:
  .byte 0
  .popsection
)");
extern "C" const unsigned char cairn_font_begin[], cairn_font_end[];

namespace cairn::inspect {

cairo_font_face_t* font() {
  static cairo_font_face_t* const face = [] {
    FT_Library library = nullptr;
    FT_Face loaded = nullptr;
    CAIRN_CHECK(FT_Init_FreeType(&library) == 0);
    CAIRN_CHECK(FT_New_Memory_Face(library, cairn_font_begin, cairn_font_end - cairn_font_begin, 0,
                                   &loaded) == 0);
    return cairo_ft_font_face_create_for_ft_face(loaded, 0);
  }();
  return face;
}

}  // namespace cairn::inspect
