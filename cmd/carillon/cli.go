package main

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"carillon/cmd/carillon/ctl"
	"carillon/cmd/carillon/migrate"
	"carillon/cmd/carillon/terminal"
	"carillon/internal/bucket"
	"carillon/node"
	"carillon/timer/duration"
	"carillon/transport/api/web"
)

// cli is every command, in the order that help shows them.
type cli struct {
	Serve    serveCmd    `cmd:"" help:"Run a node."`
	Demo     demoCmd     `cmd:"" help:"Watch a cluster lose a node, and no timer."`
	Sink     sinkCmd     `cmd:"" help:"Run a receiver that counts and checks callbacks."`
	Loadtest loadtestCmd `cmd:"" help:"Measure a node: add, fire, mixed, churn."`
	Ctl      ctl.Command `cmd:"" help:"Talk to a node: timers, topics, dead letters, the cluster."`
	Restore  restoreCmd  `cmd:"" help:"Make a data directory from a backup."`
	Wal      walCmd      `cmd:"" help:"Look at a log on disk: inspect, verify."`
	Token    tokenCmd    `cmd:"" help:"Make a token and its line for the auth file, or a secret for signatures."`
	Version  versionCmd  `cmd:"" help:"Print the version."`

	Migrate migrate.Command `cmd:"" help:"Read the jobs of Redis, Asynq or beanstalkd, for an import."`

	Completion completionCmd `cmd:"" help:"Write completions for a shell: bash, zsh, fish."`
}

const description = "Carillon calls other services back at a given time: durably, on the millisecond, and never early."

// helpText is what help shows of commands besides their lines and flags.
//
//go:embed help.txt
var helpText string

// helpOf is more about a command, and its examples, by its whole path; "": there is none.
func helpOf(path string) (detail, examples string) {
	_, entry, _ := strings.Cut(helpText, "\n# "+path+"\n")
	entry, _, _ = strings.Cut(entry, "\n# ")
	detail, examples = entry, ""
	if at := strings.Index("\n"+entry, "\n  "); at >= 0 {
		detail, examples = entry[:at], strings.TrimRight(entry[at:], "\n")
	}
	return detail, examples
}

// parsed is a command line that was understood, or at least the command whose help explains the
// fault.
type parsed struct {
	run  func(*terminal.Terminal) error
	help string // the command that prints the help that applies
}

// parse never exits except for --help, which prints to out and ends the process as kong does.
func parse(args []string, term *terminal.Terminal) (parsed, error) {
	parser, err := newParser(&cli{Loadtest: newLoadtest(), Ctl: ctl.Command{Version: version()}}, term)
	if err != nil {
		return parsed{help: "carillon --help"}, fmt.Errorf("command line: %w", err)
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		help, text := "carillon --help", err.Error()
		if fault, ok := errors.AsType[*kong.ParseError](err); ok && fault.Context != nil {
			if node := fault.Context.Selected(); node != nil {
				help = node.FullPath() + " --help"
				text = strings.TrimPrefix(text, node.Path()+": ")
			}
			text = withoutNumber(withoutValue(text, fault.Context), fault.Context)
		}
		text = notInteger.ReplaceAllString(text, "$1 is not a whole number, or too large")
		text = notFloat.ReplaceAllString(text, "$1 is not a number")
		if strings.HasPrefix(text, "unknown flag --port") {
			text += "; the address and port of the API is --http, as --http 127.0.0.1:8080"
		}
		return parsed{help: help}, terminal.Usagef("%s", text)
	}
	run := func(t *terminal.Terminal) error {
		if strings.HasPrefix(ctx.Command(), "ctl ") || strings.HasPrefix(ctx.Command(), "migrate ") {
			t = t.Safe() // what it prints comes from elsewhere
		}
		return ctx.Run(t, commandTree(parser.Model.Node))
	}
	return parsed{run: run, help: ctx.Selected().FullPath() + " --help"}, nil
}

// The parser's faults of what is no number.
var (
	notInteger = regexp.MustCompile(`expected a valid \d+ bit u?int but got ("[^"]*")`)
	notFloat   = regexp.MustCompile(`expected a float but got ("[^"]*")(?: \(string\))?`)
)

// noValue matches the parser's fault of a flag at the end of the line that has no value.
var noValue = regexp.MustCompile(`^--([a-z0-9-]+): .*"EOL" \(<EOL>\)$`)

// dashValue matches the parser's fault of a flag whose value looks like another flag.
var dashValue = regexp.MustCompile(`^--([a-z0-9-]+): expected .* value but got "(-[^"]*)"`)

// withoutValue adds to the error of a flag without a value how it is written: as in the command's
// examples, or else as in its help.
func withoutValue(text string, c *kong.Context) string {
	if m := dashValue.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("--%s: a value that begins with - is given as --%s=%s", m[1], m[1], m[2])
	}
	m := noValue.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	shown := ""
	if node := c.Selected(); node != nil {
		_, examples := helpOf(node.FullPath())
		shown = regexp.MustCompile("--" + m[1] + `[= ]\S+`).FindString(examples)
	}
	for _, f := range c.Flags() {
		if shown == "" && f.Name == m[1] {
			shown = "--" + f.Name + "=" + f.FormatPlaceHolder()
		}
	}
	return fmt.Sprintf("--%s needs a value, as in %s", m[1], shown)
}

// noNumber matches the faults of what stands where a command takes a count: parseCount's, and the
// parser's of one below 0, which looks like a flag.
var noNumber = regexp.MustCompile(`^<[a-z]+>: .*|^unknown flag (-\d+)\b.*`)

// withoutNumber rewords the fault of a command that takes a count and got something else: it names
// what the command takes.
func withoutNumber(text string, c *kong.Context) string {
	node, m := c.Selected(), noNumber.FindStringSubmatch(text)
	if m == nil || node == nil || len(node.Positional) == 0 || node.Positional[0].Tag.Type != "count" {
		return text
	}
	if m[1] != "" {
		text = fmt.Sprintf("%s: %s is less than nothing", node.Positional[0].Summary(), m[1])
	}
	return text + ". " + firstSentence(node.Positional[0].Help)
}

// parseCount reads a whole number in digits.
func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is too large", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

// newParser makes the parser of a grammar: of *cli, or of a part of it that has serve.
func newParser(grammar any, term *terminal.Terminal) (*kong.Kong, error) {
	return kong.New(grammar,
		kong.Name("carillon"),
		kong.Description(description),
		kong.Writers(term.Out, term.Err),
		kong.Exit(os.Exit),
		kong.Vars{
			"data":             node.DefaultDataDir,
			"http":             node.DefaultHTTP,
			"peer":             node.DefaultPeer,
			"gossip":           node.DefaultGossip,
			"bootstrap_expect": fmt.Sprint(node.DefaultBootstrapExpect),
			"replicas":         fmt.Sprint(node.DefaultReplicas),
			"shards":           fmt.Sprint(node.DefaultShards),
			"history_bytes":    bytesText(node.DefaultHistoryBytes),
			"scopes":           strings.Join(web.Scopes, ", "),
			"max_connections":  fmt.Sprint(node.DefaultMaxConnections),
			"backup_every":     node.DefaultBackupEvery,
			"backup_keep":      fmt.Sprint(node.DefaultBackupKeep),
			"max_calls":        fmt.Sprint(node.DefaultMaxCalls),
			"topic_idle":       "1h",
		},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.ValueFormatter(func(v *kong.Value) string { return v.Help }),
		kong.Help(printHelp),
		kong.PostBuild(nameEnvironment),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), textMapper(parseDuration)),
		kong.TypeMapper(reflect.TypeFor[netip.Prefix](), textMapper(parseNetwork)),
		kong.NamedMapper("bytes", textMapper(parseBytes)),
		kong.NamedMapper("count", textMapper(parseCount)),
		kong.NamedMapper("clock", textMapper(parseClock)),
	)
}

// parseDuration reads durations as the API does, with days and weeks.
func parseDuration(text string) (time.Duration, error) {
	d, err := duration.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%q %w", text, err)
	}
	return d, nil
}

// parseNetwork reads a network. People write spaces after the commas of a list.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return network, fmt.Errorf("%q is not a network, such as 10.0.0.0/8 or 10.0.0.7/32", text)
	}
	return network, nil
}

// textMapper decodes a text by parse.
func textMapper[T any](parse func(text string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		v, err := parse(text)
		if err == nil {
			target.Set(reflect.ValueOf(v))
		}
		return err
	}
}

// AfterApply expands ~ in the name of a file. kong's own type for paths would spoil s3://.
func (r *restoreCmd) AfterApply() error {
	if !bucket.Is(r.From) {
		r.From = kong.ExpandPath(r.From)
	}
	return nil
}

// AfterApply refuses a 0 in place of a number.
func (*loadtestCmd) AfterApply(ctx *kong.Context) error {
	return refuseZero(ctx, "duration", "batch", "timers")
}

// AfterApply refuses a 0 in place of a number. It expands ~ in --data, as restore does: a shell leaves
// --data=~/timers as it is, and the node would found a cluster in a folder called ~. Names of files
// become whole paths, so that an error of one shows in which directory it was looked for.
func (s *serveCmd) AfterApply(ctx *kong.Context) error {
	if strings.HasPrefix(s.DataDir, "~/") {
		s.DataDir = kong.ExpandPath(s.DataDir)
	}
	for _, file := range []*string{
		&s.AuthFile, &s.HTTPCert, &s.HTTPKey, &s.HTTPClientCA, &s.GossipKeyFile, &s.SecretsKeyFile, &s.PeerCert, &s.PeerKey, &s.PeerCA,
	} {
		if *file != "" {
			*file = kong.ExpandPath(*file)
		}
	}
	return refuseZero(ctx)
}

// AfterApply refuses a status of 0, which would be taken for none given.
func (c *sinkCmd) AfterApply() error {
	if c.Status == 0 {
		return terminal.Usagef("--status: 0 is not within 200 to 599")
	}
	return nil
}

// refuseZero refuses a 0 in place of a number that has another default, or of one of those named:
// further down it would be taken for none given.
func refuseZero(ctx *kong.Context, named ...string) error {
	for _, f := range ctx.Flags() {
		isNumber := f.Target.CanInt() || f.Target.CanUint() || f.Target.CanFloat()
		fromDefault := f.HasDefault && f.Default != "0"
		if isNumber && f.Target.IsZero() && (fromDefault || f.Set && slices.Contains(named, f.Name)) {
			if span := numberSpan.FindString(f.Help); span != "" {
				return terminal.Usagef("--%s: 0 is out of %s", f.Name, span)
			}
			return terminal.Usagef("--%s: must be more than 0", f.Name)
		}
	}
	return nil
}

// numberSpan matches the bounds of a number in its help.
var numberSpan = regexp.MustCompile(`\d+–\d+`)

// commandTree is the grammar as completions need it. A flag of a command is one of those below it,
// too.
func commandTree(n *kong.Node) commandNode {
	c := commandNode{Path: n.FullPath(), Help: firstSentence(n.Help)}
	for _, group := range n.AllFlags(true) {
		for _, f := range group {
			flag := commandFlag{Name: f.Name, Help: firstSentence(f.Help), IsBool: f.IsBool() || f.IsCounter(), IsFile: f.PlaceHolder == "FILE" || f.PlaceHolder == "DIR"}
			if f.Enum != "" {
				flag.Values = f.EnumSlice()
			}
			c.Flags = append(c.Flags, flag)
			if f.Tag.Negatable != "" {
				c.Flags = append(c.Flags, commandFlag{Name: "no-" + f.Name, Help: flag.Help, IsBool: true})
			}
		}
	}
	if len(n.Positional) > 0 && n.Positional[0].Enum != "" {
		c.Args = n.Positional[0].EnumSlice()
	}
	for _, child := range n.Children {
		if !child.Hidden {
			c.Below = append(c.Below, commandTree(child))
		}
	}
	return c
}

// firstSentence is the part of a help text that a shell shows with a word.
func firstSentence(help string) string {
	sentence, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(sentence, ".")
}

func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Model.Node
	if selected := ctx.Selected(); selected != nil {
		node = selected
	}
	var examples string
	node.Detail, examples = helpOf(node.FullPath())
	err := kong.DefaultHelpPrinter(options, ctx)
	if err != nil || examples == "" {
		return err
	}
	_, err = fmt.Fprintf(ctx.Stdout, "\nExamples:\n%s\n", examples)
	return err
}

// nameEnvironment gives each flag of serve its environment variable.
func nameEnvironment(k *kong.Kong) error {
	for _, flag := range serveFlags(k.Model) {
		if flag.Name != "help" {
			flag.Envs = []string{settingEnv(flag.Name)}
			flag.Tag.Envs = flag.Envs
		}
	}
	return nil
}

func serveFlags(app *kong.Application) []*kong.Flag {
	for _, child := range app.Children {
		if child.Name == "serve" {
			return child.Flags
		}
	}
	panic("command line: there is no serve command")
}

// settings lists the settings in the order of their table, serveCmd.
func settings(app *kong.Application) []setting {
	var all []setting
	for _, flag := range serveFlags(app) {
		if callOnly[flag.Name] {
			continue
		}
		all = append(all, setting{
			flag:    flag.Name,
			key:     settingKey(flag.Name),
			env:     settingEnv(flag.Name),
			meaning: flag.Help,
			accepts: func(value string) error { return tryValue(flag, value) },
		})
	}
	return all
}

// tryValue decodes a value as the flag would, so that a fault in a file is found where its line is
// still known.
func tryValue(flag *kong.Flag, value string) error {
	if _, err := decodeValue(flag, value); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "--"+flag.Name+": "))
	}
	if flag.Enum != "" && !flag.EnumMap()[value] {
		return fmt.Errorf("must be one of %s but got %q", strings.Join(flag.EnumSlice(), ", "), value)
	}
	return nil
}

func decodeValue(flag *kong.Flag, value string) (reflect.Value, error) {
	decoded := reflect.New(flag.Target.Type()).Elem()
	token := kong.Token{Type: kong.FlagValueToken, Value: value}
	return decoded, flag.Parse(kong.ScanFromTokens(token), decoded)
}

// BeforeResolve reads the configuration file, once the flags and the environment are known.
func (s *serveCmd) BeforeResolve(ctx *kong.Context) error {
	path := ""
	for _, flag := range ctx.Flags() {
		if flag.Name == "config" {
			path, _ = ctx.FlagValue(flag).(string)
		}
	}
	if path == "" {
		return nil
	}
	file, err := readConfigFile(path, settings(ctx.Model))
	if err != nil {
		return err
	}
	s.unused = file.unused(ctx)
	ctx.AddResolver(kong.ResolverFunc(file.resolve))
	return nil
}

// unused lists the keys of the file whose values are not used, as the command line or the
// environment has others: the unit of the Debian package gives --data, an image sets variables.
func (f configFile) unused(ctx *kong.Context) (all []unusedKey) {
	given := map[string]bool{}
	for _, p := range ctx.Path {
		if p.Flag != nil {
			given[p.Flag.Name] = true
		}
	}
	for _, flag := range ctx.Flags() {
		value, ok := f[flag.Name]
		first := settingEnv(flag.Name)
		if _, set := os.LookupEnv(first); given[flag.Name] {
			first = "--" + flag.Name
		} else if !set {
			continue
		}
		used := reflect.ValueOf(ctx.FlagValue(flag))
		if file, err := decodeValue(flag, value); ok && err == nil && !reflect.DeepEqual(file.Interface(), used.Interface()) {
			all = append(all, unusedKey{settingKey(flag.Name), first})
		}
	}
	return all
}

// resolve gives kong the file's value of a flag that the command line did not set; the environment
// goes before it.
func (f configFile) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, given := f[flag.Name]
	if _, set := os.LookupEnv(settingEnv(flag.Name)); !given || set {
		return nil, nil
	}
	return value, nil
}

// commandLine is what was parsed.
type commandLine = kong.Context

// withDashes writes the settings that the lines of a node's fault begin with as the parser writes
// flags.
func withDashes(text string, c *commandLine) string {
	known := c.Flags()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		names, fault, _ := strings.Cut(line, ": ")
		all := strings.Split(names, ", ")
		if slices.ContainsFunc(known, func(f *kong.Flag) bool { return f.Name == all[0] }) {
			lines[i] = "--" + strings.Join(all, ", --") + ": " + fault
		}
	}
	return strings.Join(lines, "\n")
}
