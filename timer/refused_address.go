package timer

import "strings"

// refusedCode begins the error of an attempt whose receiver's address the node's policy refused.
const refusedCode = "refused: "

// RefusedAddress reports whether the error of an attempt of a push timer is that the node's policy
// refused the receiver's address. Nothing was sent; the operator must allow the address
// (--callback-allow), or the URL must change.
func RefusedAddress(lastError string) bool { return strings.HasPrefix(lastError, refusedCode) }
