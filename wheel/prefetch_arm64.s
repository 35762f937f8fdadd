#include "textflag.h"

// func prefetch(n *node)
// Two touches: a node of 20 bytes may lie across two cache lines.
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD n+0(FP), R0
	PRFM (R0), PLDL1KEEP
	PRFM 16(R0), PLDL1KEEP
	RET
