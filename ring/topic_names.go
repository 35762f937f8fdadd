package ring

import "slices"

// topicNames are the names of topics in order. Keeping them so costs a topic that is made or
// deleted some microseconds, and a listing nothing.
type topicNames []string

func (n *topicNames) add(name string) {
	if i, known := slices.BinarySearch(*n, name); !known {
		*n = slices.Insert(*n, i, name)
	}
}

func (n *topicNames) remove(name string) {
	if i, known := slices.BinarySearch(*n, name); known {
		*n = slices.Delete(*n, i, i+1)
	}
}

// after is where the names go on that are behind one.
func (n topicNames) after(name string) []string {
	i, known := slices.BinarySearch(n, name)
	if known {
		i++
	}
	return n[i:]
}

// prefixed is where the names are that begin so.
func (n topicNames) prefixed(prefix string) []string {
	from, _ := slices.BinarySearch(n, prefix)
	to := len(n)
	if end := prefixEnd(prefix); end != "" {
		to, _ = slices.BinarySearch(n, end)
	}
	return n[from:to]
}

// prefixEnd is the first string behind all that begin so; "" when there is none.
func prefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string(prefix[i]+1)
		}
	}
	return ""
}
