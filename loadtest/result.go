package loadtest

import "bytes"

// result is how one operation of a call ended.
type result struct {
	status  int // 0 = no answer
	outcome []byte
	id      []byte // of a batch's element, nil if it names none
	answer  []byte // for showing a person the answer
}

// outcomeOf reads the outcome field of a small top-level object, such as the
// answer to a cancel.
func outcomeOf(body []byte) []byte {
	_, rest, _ := bytes.Cut(body, []byte(`"outcome":"`))
	if outcome, _, whole := bytes.Cut(rest, []byte{'"'}); whole {
		return outcome
	}
	return nil
}

// scanResults reads {"results":[{"status":201,…},…]} and calls yield for each
// element in order. Members of nested objects but an error's outcome are passed
// over. It returns how many it found; malformed JSON ends the scan.
func scanResults(body []byte, yield func(index int, r result)) int {
	const elementDepth = 3 // root object, results array, element
	found, depth := 0, 0
	var current result
	var key []byte
	for i := 0; i < len(body); i++ {
		switch c := body[i]; c {
		case '{', '[':
			depth++
			if c == '{' && depth == elementDepth {
				current = result{}
			}
		case '}', ']':
			if c == '}' && depth == elementDepth {
				yield(found, current)
				found++
			}
			depth--
		case '"':
			end := stringEnd(body, i)
			if end < 0 {
				return found
			}
			text := body[i+1 : end]
			i = end
			if next := skipSpace(body, end+1); next < len(body) && body[next] == ':' {
				key = text
			} else if string(key) == "outcome" && (depth == elementDepth || depth == elementDepth+1) {
				current.outcome = text
			} else if string(key) == "id" && depth == elementDepth {
				current.id = text
			}
		default:
			if c < '0' || c > '9' || depth != elementDepth || string(key) != "status" {
				continue
			}
			status := 0
			for ; i < len(body) && body[i] >= '0' && body[i] <= '9' && status < 1000; i++ {
				status = status*10 + int(body[i]-'0')
			}
			i--
			current.status, key = status, nil
		}
	}
	return found
}

// stringEnd is the index of the quote that closes the string opened at i.
func stringEnd(body []byte, i int) int {
	for i++; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

func skipSpace(body []byte, i int) int {
	for i < len(body) && (body[i] == ' ' || body[i] == '\n' || body[i] == '\t' || body[i] == '\r') {
		i++
	}
	return i
}
