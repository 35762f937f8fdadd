package web

import "strings"

// Bounds of names, in bytes.
const (
	MaxTopicBytes = 128
	maxIDBytes    = 128 // without the key
	maxKeyBytes   = 64
	maxLabelBytes = 64
	maxNodeBytes  = 63
	maxLabels     = 16
)

// Classes of bytes, as bits.
const (
	topicFirst = 1 << iota // [A-Za-z0-9]
	TopicRest              // [A-Za-z0-9_.-]
	idByte                 // [A-Za-z0-9_.:@-]
	labelByte              // [A-Za-z0-9_.:=-]
)

var byteClass = func() (t [256]uint8) {
	set := func(chars string, class uint8) {
		for i := range len(chars) {
			t[chars[i]] |= class
		}
	}
	const alnum = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	set(alnum, topicFirst)
	set(alnum+"_.-", TopicRest)
	set(alnum+"_.:@-", idByte)
	set(alnum+"_.:=-", labelByte)
	return t
}()

// Only reports whether all bytes of s are of a class.
func Only(s string, class uint8) bool {
	for i := range len(s) {
		if byteClass[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// ValidTopic: a topic's name, 1–128 of A-Z a-z 0-9 _ . -, starting with a letter or digit.
func ValidTopic(s string) bool {
	return s != "" && len(s) <= MaxTopicBytes && byteClass[s[0]]&topicFirst != 0 && Only(s, TopicRest)
}

// ValidKey: 1–64 of A-Z a-z 0-9 _ . : @ -.
func ValidKey(s string) bool {
	return s != "" && len(s) <= maxKeyBytes && Only(s, idByte)
}

// ValidID: 1–128 bytes, not a dot segment, optionally led by one {key}.
func ValidID(s string) bool {
	if strings.HasPrefix(s, "{") {
		end := strings.IndexByte(s, '}')
		if end < 0 || !ValidKey(s[1:end]) {
			return false
		}
		s = s[end+1:]
	}
	return s != "" && len(s) <= maxIDBytes && s != "." && s != ".." && Only(s, idByte)
}

func validLabel(s string) bool {
	return s != "" && len(s) <= maxLabelBytes && Only(s, labelByte)
}

// ValidIDPrefix reports whether an id can start so.
func ValidIDPrefix(s string) bool {
	if len(s) > maxIDBytes+maxKeyBytes+2 {
		return false
	}
	if strings.HasPrefix(s, "{") {
		key, rest, closed := strings.Cut(s[1:], "}")
		return Only(key, idByte) && (!closed || key != "") && Only(rest, idByte)
	}
	return Only(s, idByte)
}

// ValidNode: a node's name, 1–63 of A-Z a-z 0-9 _ . -, starting with a letter or digit.
func ValidNode(s string) bool { return ValidTopic(s) && len(s) <= maxNodeBytes }
