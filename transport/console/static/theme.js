// Before anything is drawn: the theme that the person chose here, if any. Without a choice the
// browser's preference holds.
(function () {
  try {
    var chosen = localStorage.getItem("carillon-theme");
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
  } catch (e) { /* storage is off: the preference holds */ }
})();
