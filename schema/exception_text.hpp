#pragma once

#include <kj/exception.h>

#include <string>

namespace outrider::schema {

/// What went wrong, for people: KJ's description without the call's name and its arguments.
std::string reason_of(const kj::Exception& exception);

}  // namespace outrider::schema
