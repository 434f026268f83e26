#pragma once
#include <dice_light/cuda.h>
