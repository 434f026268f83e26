#pragma once
#include <dice_light/dispatch.h>
