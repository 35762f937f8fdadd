package api

import (
	"strconv"
	"strings"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

func decLen(s string) string { return strconv.Itoa(len(s)) }
func hexLen(s string) string { return strconv.FormatInt(int64(len(s)), 16) }
