package api

import "strings"

// Bounds of names, in bytes.
const (
	maxTopicBytes = 128
	maxIDBytes    = 128 // without the key
	maxKeyBytes   = 64
	maxLabelBytes = 64
	maxNodeBytes  = 63
	maxLabels     = 16
)

// Classes of bytes, as bits.
const (
	topicFirst = 1 << iota // [A-Za-z0-9]
	topicRest              // [A-Za-z0-9_.-]
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
	set(alnum+"_.-", topicRest)
	set(alnum+"_.:@-", idByte)
	set(alnum+"_.:=-", labelByte)
	return t
}()

func only(s string, class uint8) bool {
	for i := range len(s) {
		if byteClass[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

func validTopic(s string) bool {
	return s != "" && len(s) <= maxTopicBytes && byteClass[s[0]]&topicFirst != 0 && only(s, topicRest)
}

func validKey(s string) bool {
	return s != "" && len(s) <= maxKeyBytes && only(s, idByte)
}

// validID: 1–128 bytes, not a dot segment, optionally led by one {key}.
func validID(s string) bool {
	if strings.HasPrefix(s, "{") {
		end := strings.IndexByte(s, '}')
		if end < 0 || !validKey(s[1:end]) {
			return false
		}
		s = s[end+1:]
	}
	return s != "" && len(s) <= maxIDBytes && s != "." && s != ".." && only(s, idByte)
}

func validLabel(s string) bool {
	return s != "" && len(s) <= maxLabelBytes && only(s, labelByte)
}

// validIDPrefix reports whether an id can start so.
func validIDPrefix(s string) bool {
	if len(s) > maxIDBytes+maxKeyBytes+2 {
		return false
	}
	if strings.HasPrefix(s, "{") {
		key, rest, closed := strings.Cut(s[1:], "}")
		return only(key, idByte) && (!closed || key != "") && only(rest, idByte)
	}
	return only(s, idByte)
}
