package loadtest

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"count":  count,
	"ms":     func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"cores":  func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"number": func(v int64) string { return count(float64(v)) },
}).Parse(pageText))

// pageData is the data of the page. The charts are our own SVG, made of numbers and fixed words
// only, hence safe to embed.
type pageData struct {
	Report
	Failed     []string
	Percentile template.HTML
	Throughput template.HTML
	OverTime   template.HTML
}

// WriteHTML writes the report as one page that needs nothing from anywhere.
func (r Report) WriteHTML(w io.Writer) error {
	data := pageData{Report: r, Failed: r.Failures()}
	data.Percentile = percentileChart(r).svg()
	data.Throughput = rateChart(r).svg()
	data.OverTime = delayChart(r).svg()
	var text bytes.Buffer
	if err := page.Execute(&text, data); err != nil {
		return fmt.Errorf("loadtest: write HTML: %w", err)
	}
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("loadtest: write HTML: %w", err)
	}
	return nil
}
