#pragma once
#include <dice_light/core.h>
