package web

import "testing"

const noonMs = 1780315200001

func BenchmarkParseInstant(b *testing.B) {
	for b.Loop() {
		if _, ok := ParseInstant("2026-12-24T18:00:00.250+01:00"); !ok {
			b.Fatal()
		}
	}
}

func BenchmarkAppendInstant(b *testing.B) {
	var out []byte
	for b.Loop() {
		out = AppendInstant(out[:0], noonMs)
	}
}

func BenchmarkParseSpan(b *testing.B) {
	for b.Loop() {
		if _, ok := ParseSpan("1h30m"); !ok {
			b.Fatal()
		}
	}
}
