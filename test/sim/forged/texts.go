package forged

// Texts are texts in the form of what we print: lines, events, labels, headers, answers.
func Texts() map[string]string {
	return map[string]string{
		"log line":       "ok\ntime=2026-01-01T00:00:00.000Z level=ERROR msg=forged shard=1",
		"log line, json": "\"}\n{\"time\":\"2026-01-01T00:00:00Z\",\"level\":\"ERROR\",\"msg\":\"forged\"}",
		"audit line":     "x\"}\n{\"time\":\"2026-01-01T00:00:00.000Z\",\"who\":\"forged\",\"what\":\"topic.delete\",\"object\":\"orders\",\"from\":\"::1\",\"status\":200}",
		"metric":         "a\"} 1\ncarillon_replica_faults{kind=\"forged\"} 7\n# TYPE x",
		"event":          "x\n\nevent: dead\ndata: {\"topic\":\"forged\"}\n\n",
		"event, CR":      "x\r\revent: dead\rdata: forged\r\r",
		"NDJSON":         "{\"op\":\"cancel\",\"id\":\"a\"}\n{\"op\":\"add\",\"id\":\"forged\"}",
		"JSON":           `{"id":"forged","payload":{"id":"forged"},"state":"done","next":"forged"}`,
		"JSON in JSON":   `"{\"id\":\"forged\"}","state":"done`,
		"answer":         "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"headers":        "v\r\nwebhook-id: forged\r\nCarillon-Fence: 1\r\nce-id: forged",
		"page":           `</script><img src=x onerror="alert(1)"><!--`,
		"escape codes":   "\x1b]0;forged\x07\x1b[2J",
		"separators":     "a\u2028b\u2029c\u0085d\x00e\x7f",
		"cursor":         "AQAAAAAAAAAAAAA",
		"receipt":        "AQEBAQEBAAAAAAAAAAAAAAAAAAAAAA",
		"envelope":       "\x01AAAAAAAA" + "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"not UTF-8":      "\xff\xfe\xed\xa0\x80\"\n",
	}
}
