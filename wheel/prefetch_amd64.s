#include "textflag.h"

// func prefetch(n *node)
// Two touches: a node of 20 bytes may lie across two cache lines.
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 16(AX)
	RET
