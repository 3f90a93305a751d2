package hub

import (
	"bufio"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// pipSettings are the parts of pip's configuration that say where packages are.
type pipSettings struct {
	indexes []*url.URL // index-url, then extra-index-url; empty when none is configured
	cert    string     // file with certificate authorities
}

// readPipSettings reads pip.conf of the machine, the user and the virtual environment, then PIP_CONFIG_FILE, then the PIP_*
// variables, later ones winning, as pip does.
func readPipSettings() pipSettings {
	values := map[string]string{}
	if os.Getenv("PIP_CONFIG_FILE") != os.DevNull {
		for _, file := range append(pipConfFiles(), os.Getenv("PIP_CONFIG_FILE")) {
			readPipConf(file, values)
		}
	}
	for _, key := range []string{"index-url", "extra-index-url", "no-index", "cert"} {
		if v := os.Getenv("PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))); v != "" {
			values[key] = v
		}
	}
	s := pipSettings{cert: values["cert"]}
	if v := strings.ToLower(values["no-index"]); v == "1" || v == "true" || v == "yes" || v == "on" {
		return s
	}
	if values["index-url"] == "" {
		return s // pip's own default index is pip's business
	}
	for _, raw := range strings.Fields(values["index-url"] + " " + values["extra-index-url"]) {
		if u, err := url.Parse(raw); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
			s.indexes = append(s.indexes, u)
		}
	}
	return s
}

// pipConfFiles lists the places of pip.conf, the weakest first.
func pipConfFiles() []string {
	home, _ := os.UserHomeDir()
	config, _ := os.UserConfigDir()
	venv := os.Getenv("VIRTUAL_ENV")
	switch runtime.GOOS {
	case "windows":
		return []string{filepath.Join(os.Getenv("ProgramData"), "pip", "pip.ini"), filepath.Join(home, "pip", "pip.ini"),
			filepath.Join(config, "pip", "pip.ini"), below(venv, "pip.ini")}
	case "darwin":
		return []string{"/Library/Application Support/pip/pip.conf", filepath.Join(home, ".pip", "pip.conf"),
			filepath.Join(home, ".config", "pip", "pip.conf"), filepath.Join(config, "pip", "pip.conf"), below(venv, "pip.conf")}
	}
	files := []string{}
	dirs := os.Getenv("XDG_CONFIG_DIRS")
	if dirs == "" {
		dirs = "/etc/xdg"
	}
	for _, d := range filepath.SplitList(dirs) {
		files = append(files, filepath.Join(d, "pip", "pip.conf"))
	}
	return append(files, "/etc/pip.conf", filepath.Join(home, ".pip", "pip.conf"), filepath.Join(config, "pip", "pip.conf"), below(venv, "pip.conf"))
}

func below(dir, name string) string {
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

// readPipConf adds the [global] and [download] settings of a file, the latter winning. Indented lines continue the one above.
func readPipConf(file string, values map[string]string) {
	f, err := os.Open(file)
	if file == "" || err != nil {
		return
	}
	defer f.Close()
	sections := map[string]map[string]string{"global": {}, "download": {}}
	section, key := "", ""
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimRight(sc.Text(), " \t\r")
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
		case text[0] == '[':
			section, key = strings.ToLower(strings.Trim(text, "[] ")), ""
		case (line[0] == ' ' || line[0] == '\t') && key != "":
			if s := sections[section]; s != nil {
				s[key] += " " + text
			}
		default:
			at := strings.IndexAny(text, "=:")
			if at < 0 {
				continue
			}
			key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text[:at])), "_", "-")
			if s := sections[section]; s != nil {
				s[key] = strings.TrimSpace(text[at+1:])
			}
		}
	}
	for _, s := range []string{"global", "download"} {
		for k, v := range sections[s] {
			values[k] = v
		}
	}
}

// roots returns the certificate authorities that pip trusts, nil for the system's.
func (s *pipSettings) roots() *x509.CertPool {
	data, err := os.ReadFile(s.cert)
	if s.cert == "" || err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(data)
	return pool
}
