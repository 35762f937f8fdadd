package terminal

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden stands for what a terminal could take for a command.
const hidden = '·'

// Printable is a text from elsewhere, whose control characters, of which a terminal takes some for
// commands, show as a dot; so do those that change the direction of the text around them. Tabs and
// line ends stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !control(r) {
			return r
		}
		return hidden
	}, text)
}

func control(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError || unicode.Is(unicode.Bidi_Control, r)
}

// printable writes text as Printable shows it.
type printable struct {
	to   io.Writer
	part []byte // of a character
}

func (p *printable) Write(chunk []byte) (int, error) {
	text := append(p.part, chunk...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ { // is the last character all there?
		if utf8.RuneStart(text[len(text)-back]) {
			if !utf8.FullRune(text[len(text)-back:]) {
				whole -= back
			}
			break
		}
	}
	_, err := io.WriteString(p.to, Printable(string(text[:whole])))
	p.part = append([]byte(nil), text[whole:]...)
	return len(chunk), err
}

// Safe is a terminal for text from elsewhere: nothing that is written to it is a command. Data and
// Raw write without that.
func (t *Terminal) Safe() *Terminal {
	return &Terminal{In: t.In, Out: &printable{to: t.Out}, Err: &printable{to: t.Err}, raw: t}
}

// Raw is the terminal below a Safe one.
func (t *Terminal) Raw() *Terminal {
	if t.raw == nil {
		return t
	}
	return t.raw
}

// Data is where bytes go that must stay as they are, for a file or a program. On a
// screen they are printable.
func (t *Terminal) Data() io.Writer {
	if out := t.Raw().Out; !IsScreen(out) {
		return out
	}
	return t.Out
}

// IsScreen reports whether an output is a screen, and no file or pipe.
func IsScreen(out io.Writer) bool {
	file, is := out.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
