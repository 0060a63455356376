// SPDX-License-Identifier: Apache-2.0
// The font that Cairn draws with: DejaVu Sans, carried inside the library, so that a picture looks
// the same on every machine, with no fonts or fontconfig installed. See docs/decisions/font.md.
#pragma once
#include <cairo.h>

namespace cairn::inspect {

// Owned by the library and never freed; any thread may set it on its own cairo context.
cairo_font_face_t* font();

}  // namespace cairn::inspect
