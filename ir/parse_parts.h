// Parts of the text form that need no context: types and attribute values.
#pragma once

#include "ir/op.h"
#include "ir/token_stream.h"

namespace kiln {

Type parse_type(TokenStream& in);
AttrValue parse_attribute(TokenStream& in, const AttrInfo& attr);  // of any type but Number

// A literal in an op's Number attribute, kept until the result's type is known.
Token parse_number(TokenStream& in, const AttrInfo& attr);
AttrValue number_of(const TokenStream& in, const Token& literal, DType dtype);

}  // namespace kiln
