package api

// What the contract names but this version does not do. Values are read and checked like any other; one that asks for
// the missing thing is refused, one that spells out the default is accepted.

func later(name string) *problem {
	return failf(422, badPolicy, "%s comes in a later version", name)
}
